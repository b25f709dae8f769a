#pragma once
// Device memory that host code reads and writes, too.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "worker/engine/elements.h"
#include "worker/engine/memory_account.h"

namespace motley {

/// Where memory that the device computes with is.
enum class Placement {
  kDevice,
  kManaged,  ///< where the system moves it, see Device::allocate_managed
};

/// A device buffer with a host view. Where host code reaches the buffer, as it does managed memory
/// of any device, the view is the memory itself; elsewhere it is a copy that pull() and push()
/// bring up to date.
class SharedMemory {
 public:
  /// On `account`, which outlives it; managed memory of a device other than a CPU as the host's.
  static Result<SharedMemory> allocate(Device& device, Bytes size, MemoryAccount& account,
                                       Placement placement = Placement::kDevice);

  std::byte* device() const { return static_cast<std::byte*>(buffer_.data()); }
  /// Waits for the device; afterwards the view shows what it computed. Returns the view.
  Result<std::span<std::byte>> pull() { return pull(Bytes(0), size_); }
  /// The same for [offset, offset + size) alone.
  Result<std::span<std::byte>> pull(Bytes offset, Bytes size);
  Result<Unit> push() { return push(Bytes(0), size_); }
  /// What host code wrote into [offset, offset + size) of the view reaches the device.
  Result<Unit> push(Bytes offset, Bytes size);
  /// The view without waiting or copying.
  std::span<std::byte> host();
  Bytes size() const { return size_; }
  /// Of that what the device's limit is for.
  Bytes on_device() const { return use_ == MemoryUse::kDevice ? size_ : Bytes(0); }

 private:
  Device* device_ = nullptr;
  MemoryUse use_ = MemoryUse::kDevice;
  bool in_place_ = true;  ///< the view is the memory itself
  MemoryCharge charge_;
  DeviceBuffer buffer_;
  Bytes size_{0};
  CountedMemory copy_;
};

/// Host memory that the device copies from and into directly (Device::allocate_pinned), zeroed.
class PinnedMemory {
 public:
  /// On `account`, which outlives it, as the device does.
  static Result<PinnedMemory> allocate(Device& device, Bytes size, MemoryAccount& account);

  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(buffer_.data()), static_cast<size_t>(buffer_.size().value())};
  }

 private:
  MemoryCharge charge_;
  DeviceBuffer buffer_;
};

/// body(index) for index in [0, count): on the device's threads where those are the host's, else on
/// the caller's.
void host_for(Device& device, int64_t count, const std::function<void(int64_t index)>& body);

/// A part of a view as `count` values of T.
template <class T>
std::span<T> values(std::span<std::byte> bytes, Bytes offset, int64_t count) {
  return {reinterpret_cast<T*>(bytes.data() + offset.value()), static_cast<size_t>(count)};
}

}  // namespace motley
