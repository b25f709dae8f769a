#include "comm/nccl_library.h"

namespace motley::nccl {

void Library::find_all(VendorSymbols& symbols) {
  symbols.find(get_version, "ncclGetVersion")
      .find(get_unique_id, "ncclGetUniqueId")
      .find(init, "ncclCommInitRankConfig")
      .find(finalize, "ncclCommFinalize")
      .find(destroy, "ncclCommDestroy")
      .find(abort, "ncclCommAbort")
      .find(get_async_error, "ncclCommGetAsyncError")
      .find(error_string, "ncclGetErrorString")
      .find(last_error, "ncclGetLastError")
      .find(create_weighted_sum, "ncclRedOpCreatePreMulSum")
      .find(destroy_op, "ncclRedOpDestroy")
      .find(all_reduce, "ncclAllReduce")
      .find(reduce, "ncclReduce")
      .find(reduce_scatter, "ncclReduceScatter")
      .find(all_gather, "ncclAllGather")
      .find(broadcast, "ncclBroadcast")
      .find(send, "ncclSend")
      .find(receive, "ncclRecv")
      .find(group_start, "ncclGroupStart")
      .find(group_end, "ncclGroupEnd");
}

int64_t Library::ask_version() {
  const bool told = get_version != nullptr && get_version(&version) == kSuccess;
  return told ? version : 0;
}

Result<const Library*> Library::open(const char* name) {
  constexpr int64_t kFirstVersion = 21400;  // communicators that do not block
  return open_vendor_library<Library>(name, {"NCCL", kFirstVersion});
}

std::string Library::version_text() const { return dotted_version(version); }

std::string Library::reason(Status status, Comm comm) const {
  std::string text = error_string(status);
  const char* last = comm == nullptr ? nullptr : last_error(comm);
  if (last != nullptr && *last != '\0') text += std::string(" (") + last + ")";
  return text;
}

}  // namespace motley::nccl
