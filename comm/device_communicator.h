#pragma once
// Collectives on the memory of GPUs that form an island: ranks whose devices reach each other
// without passing through the hosts. Whatever is between islands goes through a Communicator.
//
// Calls queue up on the device's stream behind what it computes and return; what is enqueued later
// finds the results, and so does the host after wait(). Every rank of the island makes the same
// calls in the same order with the same counts. One thread, the one that drives the device.
// kPeerLost (naming operation and reason) ends the group: whatever was under way is aborted, every
// later call fails alike.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "comm/communicator.h"
#include "comm/sum_type.h"
#include "core/result.h"
#include "kernels/device.h"

namespace motley {

/// Elements side by side in device memory.
struct DeviceArray {
  void* data = nullptr;
  int64_t count = 0;
  SumType element = SumType::kFloat32;
};

/// Bytes to or from a rank of the island; not the same one.
struct DeviceTransfer {
  int peer = 0;
  void* data = nullptr;
  int64_t bytes = 0;
};

class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// "NCCL 2.28.9"
  virtual std::string description() const = 0;

  /// inout[i] = Σ_r inout_r[i], identical bits on all ranks. The order is the library's: of
  /// integers, which wrap, it is no matter.
  virtual Result<Unit> all_reduce_sum(const DeviceArray& inout) = 0;
  /// The same on `root` alone; what the others have stays as it is.
  virtual Result<Unit> reduce_sum(const DeviceArray& inout, int root) = 0;
  /// inout[i] = Σ_r weight_r · inout_r[i], each rank giving its own weight, which is above zero: a
  /// rank that counts for nothing clears its memory. Not of integers.
  virtual Result<Unit> all_reduce_weighted_sum(const DeviceArray& inout, double weight) = 0;
  /// own[i] = Σ_r all_r[rank · own.count + i]; `all` has size() · own.count elements.
  virtual Result<Unit> reduce_scatter_sum(const void* all, const DeviceArray& own) = 0;
  /// all[r · own.count + i] = own_r[i]
  virtual Result<Unit> all_gather(const DeviceArray& own, void* all) = 0;
  /// Of `root` to all.
  virtual Result<Unit> broadcast(void* data, int64_t bytes, int root) = 0;
  /// All these at once; between two ranks they match in the order given.
  virtual Result<Unit> exchange(std::span<const DeviceTransfer> receives,
                                std::span<const DeviceTransfer> sends) = 0;

  /// Until all that was enqueued on the device is done.
  virtual Result<Unit> wait() = 0;
  /// Collective, after the last wait(): leaves in good order. Without it the destructor aborts.
  virtual Result<Unit> close() = 0;
};

/// What NCCL is found as.
inline constexpr const char* kNcclLibrary = "libnccl.so.2";

/// The ranks of `ranks`, each with a GPU of its own, through NCCL. Collective: on all ranks or on
/// none. kUnsupported, alike on all and with the first rank's reason, where the library is missing,
/// too old or not the same everywhere, or does not connect; `ranks` remains usable. Borrows
/// `device`. The environment, NCCL_* included, stays the user's.
Result<std::unique_ptr<DeviceCommunicator>> open_nccl_communicator(
    Communicator& ranks, Device& device, const CommunicatorOptions& options = {},
    const char* library = kNcclLibrary);

}  // namespace motley
