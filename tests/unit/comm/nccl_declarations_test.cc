// Our declarations of NCCL against its header, and what we look up against the library. Needs both,
// but no GPU.

#include <gtest/gtest.h>
#include <nccl.h>

#include <cstddef>
#include <string>
#include <type_traits>

#include "comm/nccl_library.h"

namespace motley::nccl {
namespace {

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(static_cast<int>(kSuccess) == ncclSuccess &&
              static_cast<int>(kInProgress) == ncclInProgress);
static_assert(static_cast<int>(kInt8) == ncclInt8 && static_cast<int>(kInt64) == ncclInt64 &&
              static_cast<int>(kFloat32) == ncclFloat32 &&
              static_cast<int>(kFloat64) == ncclFloat64);
static_assert(static_cast<int>(kSum) == ncclSum);
static_assert(static_cast<int>(kHostImmediate) == ncclScalarHostImmediate);
static_assert(sizeof(Comm) == sizeof(ncclComm_t) && sizeof(Stream) == sizeof(cudaStream_t));
static_assert(sizeof(Status) == sizeof(ncclResult_t) && sizeof(RedOp) == sizeof(ncclRedOp_t) &&
              sizeof(DataType) == sizeof(ncclDataType_t));
static_assert(offsetof(Config, size) == offsetof(ncclConfig_t, size) &&
              offsetof(Config, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(Config, version) == offsetof(ncclConfig_t, version) &&
              offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));

/// The same number and sizes of arguments, each of which is passed alike.
template <class Ours, class Real>
struct SameCall : std::false_type {};
template <class... Ours, class OurResult, class... Real, class RealResult>
struct SameCall<OurResult (*)(Ours...), RealResult (*)(Real...)>
    : std::bool_constant<(sizeof...(Ours) == sizeof...(Real)) &&
                         ((sizeof(Ours) == sizeof(Real)) && ...) &&
                         ((std::is_pointer_v<Ours> == std::is_pointer_v<Real>)&&...) &&
                         sizeof(OurResult) == sizeof(RealResult)> {};
#define SAME_CALL(ours, real) \
  static_assert(SameCall<decltype(Library::ours), decltype(&(real))>::value)
SAME_CALL(get_version, ncclGetVersion);
SAME_CALL(get_unique_id, ncclGetUniqueId);
SAME_CALL(init, ncclCommInitRankConfig);
SAME_CALL(finalize, ncclCommFinalize);
SAME_CALL(destroy, ncclCommDestroy);
SAME_CALL(abort, ncclCommAbort);
SAME_CALL(get_async_error, ncclCommGetAsyncError);
SAME_CALL(error_string, ncclGetErrorString);
SAME_CALL(last_error, ncclGetLastError);
SAME_CALL(create_weighted_sum, ncclRedOpCreatePreMulSum);
SAME_CALL(destroy_op, ncclRedOpDestroy);
SAME_CALL(all_reduce, ncclAllReduce);
SAME_CALL(reduce, ncclReduce);
SAME_CALL(reduce_scatter, ncclReduceScatter);
SAME_CALL(all_gather, ncclAllGather);
SAME_CALL(broadcast, ncclBroadcast);
SAME_CALL(send, ncclSend);
SAME_CALL(receive, ncclRecv);
SAME_CALL(group_start, ncclGroupStart);
SAME_CALL(group_end, ncclGroupEnd);
#undef SAME_CALL

TEST(NcclDeclarations, TheLibraryHasAllWeUse) {
  const auto library = Library::open(NCCL_LIBRARY_PATH);
  ASSERT_TRUE(library) << library.error().message;
  EXPECT_EQ((*library)->version, NCCL_VERSION_CODE);
  EXPECT_EQ((*library)->version_text(), std::to_string(NCCL_MAJOR) + "." +
                                            std::to_string(NCCL_MINOR) + "." +
                                            std::to_string(NCCL_PATCH));
  EXPECT_NE((*library)->reason(static_cast<Status>(ncclInvalidUsage), nullptr), "");
}

}  // namespace
}  // namespace motley::nccl
