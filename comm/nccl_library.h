#pragma once
// NVIDIA's NCCL, opened at run time. Its declarations here are our own, after the NCCL user guide
// and valid for every 2.x from 2.14 on; pointers and streams are CUDA's.

#include <cstddef>
#include <string>

#include "core/result.h"
#include "core/vendor_library.h"

namespace motley::nccl {

using Comm = void*;  ///< ncclComm_t
using Stream = void*;

struct UniqueId {
  char bytes[128];
};

/// ncclResult_t
enum Status : int { kSuccess = 0, kInProgress = 7 };

/// ncclDataType_t
enum DataType : int { kInt8 = 0, kInt64 = 4, kFloat32 = 7, kFloat64 = 8 };

/// ncclRedOp_t; those made by create_weighted_sum have values of their own.
enum RedOp : int { kSum = 0 };

/// ncclScalarResidence_t
enum ScalarResidence : int { kHostImmediate = 1 };

/// ncclConfig_t as of 2.14, which later versions still take: they look at size and version.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

/// The functions used; none is null.
struct Library {
  /// kUnsupported with one line where there is no such library, it lacks a function, or is older
  /// than 2.14, the first that does not block. Stays open for the life of the process.
  static Result<const Library*> open(const char* name);

  /// "2.28.9"
  std::string version_text() const;
  /// For open_vendor_library().
  void find_all(VendorSymbols& symbols);
  int64_t ask_version();
  /// What the library says of a status, with its last error of this communicator.
  std::string reason(Status status, Comm comm) const;

  int version = 0;  ///< 22809

  Status (*get_version)(int* version) = nullptr;
  Status (*get_unique_id)(UniqueId* id) = nullptr;
  Status (*init)(Comm* comm, int ranks, UniqueId id, int rank, Config* config) = nullptr;
  Status (*finalize)(Comm comm) = nullptr;
  Status (*destroy)(Comm comm) = nullptr;
  Status (*abort)(Comm comm) = nullptr;
  Status (*get_async_error)(Comm comm, Status* status) = nullptr;
  const char* (*error_string)(Status status) = nullptr;
  const char* (*last_error)(Comm comm) = nullptr;
  Status (*create_weighted_sum)(RedOp* op, void* weight, DataType type, ScalarResidence where,
                                Comm comm) = nullptr;
  Status (*destroy_op)(RedOp op, Comm comm) = nullptr;
  Status (*all_reduce)(const void* in, void* out, size_t count, DataType type, RedOp op, Comm comm,
                       Stream stream) = nullptr;
  Status (*reduce)(const void* in, void* out, size_t count, DataType type, RedOp op, int root,
                   Comm comm, Stream stream) = nullptr;
  Status (*reduce_scatter)(const void* in, void* out, size_t out_count, DataType type, RedOp op,
                           Comm comm, Stream stream) = nullptr;
  Status (*all_gather)(const void* in, void* out, size_t in_count, DataType type, Comm comm,
                       Stream stream) = nullptr;
  Status (*broadcast)(const void* in, void* out, size_t count, DataType type, int root, Comm comm,
                      Stream stream) = nullptr;
  Status (*send)(const void* in, size_t count, DataType type, int peer, Comm comm,
                 Stream stream) = nullptr;
  Status (*receive)(void* out, size_t count, DataType type, int peer, Comm comm,
                    Stream stream) = nullptr;
  Status (*group_start)() = nullptr;
  Status (*group_end)() = nullptr;
};

}  // namespace motley::nccl
