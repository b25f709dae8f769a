#pragma once
// Device memory that host code reads and writes, too.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "kernels/device.h"
#include "worker/engine/elements.h"
#include "worker/engine/memory_account.h"

namespace motley {

/// Host memory that the device copies to and from by itself, on an account as MemoryUse::kHost.
/// Zeroed.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  static Result<PinnedMemory> allocate(Device& device, Bytes size, MemoryAccount& account);

  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(buffer_.data()), static_cast<size_t>(buffer_.size().value())};
  }

 private:
  MemoryCharge charge_;
  DeviceBuffer buffer_;
};

/// Where memory that the device computes with is.
enum class Placement {
  kDevice,
  kManaged,  ///< where the system moves it, see Device::allocate_managed
};

/// A device buffer with a host view. Where host code reaches the buffer, as it does managed memory
/// of any device, the view is the memory itself; elsewhere it is a copy that pull() and push()
/// bring up to date, and that is there from the first need of it on.
class SharedMemory {
 public:
  /// On `account`, which outlives it; managed memory of a device other than a CPU as the host's.
  static Result<SharedMemory> allocate(Device& device, Bytes size, MemoryAccount& account,
                                       Placement placement = Placement::kDevice);

  std::byte* device() const { return static_cast<std::byte*>(buffer_.data()); }
  Bytes size() const { return size_; }

  /// Makes sure of the view, so that nothing below allocates. kDeviceLost when there is no memory
  /// for it.
  Result<Unit> have_view();
  bool has_view() const { return in_place_ || view_.bytes().size() > 0; }
  /// The view without waiting or copying; it must be there.
  std::span<std::byte> host() const;
  /// Waits for the device; afterwards the view shows what it computed. Returns the view.
  Result<std::span<std::byte>> pull() { return pull(Bytes(0), size_); }
  /// The same for [offset, offset + size) alone, which is what it returns.
  Result<std::span<std::byte>> pull(Bytes offset, Bytes size);
  /// The same without waiting.
  Result<Unit> enqueue_pull(Bytes offset, Bytes size);
  /// What host code wrote into the view reaches the device, in the order of the stream: until that
  /// has passed, the view stays as it is.
  Result<Unit> enqueue_push() { return enqueue_push(Bytes(0), size_); }
  Result<Unit> enqueue_push(Bytes offset, Bytes size);
  /// Both beside the stream, as Device::copy_out_beside and copy_in_beside.
  Result<Unit> pull_beside(Bytes offset, Bytes size, StreamMark& after, StreamMark& done);
  Result<Unit> push_beside(Bytes offset, Bytes size, StreamMark& after, StreamMark& done);
  /// Whether the view is the memory itself.
  bool in_place() const { return in_place_; }
  /// Of size() what the device's limit is for.
  Bytes on_device() const { return use_ == MemoryUse::kDevice ? size_ : Bytes(0); }

 private:
  std::span<std::byte> host(Bytes offset, Bytes size) const {
    return host().subspan(static_cast<size_t>(offset.value()), static_cast<size_t>(size.value()));
  }

  Device* device_ = nullptr;
  MemoryAccount* account_ = nullptr;
  MemoryUse use_ = MemoryUse::kDevice;
  bool in_place_ = true;
  MemoryCharge charge_;
  DeviceBuffer buffer_;
  Bytes size_{0};
  PinnedMemory view_;
};

/// Device memory that host code reads and writes in pieces, wherever in it these are: where it
/// does not reach that memory, through a window of bounded size that moves with the accesses.
/// One window for any number of memories.
class MemoryWindow {
 public:
  static Result<MemoryWindow> create(Device& device);

  Result<Unit> read(const SharedMemory& memory, Bytes offset, std::span<std::byte> into);
  /// The device sees it after flush().
  Result<Unit> write(const SharedMemory& memory, Bytes offset, std::span<const std::byte> from);
  Result<Unit> flush();
  /// The device is about to change its memory: what the window shows is not looked at again.
  void forget() { over_ = nullptr; }
  /// Calls body(bytes) for [offset, offset + size) piece by piece, each of a multiple of 64 bytes
  /// but the last.
  Result<Unit> each_piece(const SharedMemory& memory, Bytes offset, Bytes size,
                          const std::function<void(std::span<const std::byte>)>& body);

 private:
  explicit MemoryWindow(Device& device) : device_(&device) {}
  Result<std::span<std::byte>> at(const SharedMemory& memory, Bytes offset);

  Device* device_;
  DeviceBuffer buffer_;
  std::byte* over_ = nullptr;  ///< what of the device's memory it shows; null: nothing
  int64_t shown_ = 0;
  bool changed_ = false;
};

/// body(index) for index in [0, count): on the device's threads where those are the host's, else on
/// threads of the host's own.
void host_for(Device& device, int64_t count, const std::function<void(int64_t index)>& body);

/// A part of a view as `count` values of T.
template <class T>
std::span<T> values(std::span<std::byte> bytes, Bytes offset, int64_t count) {
  return {reinterpret_cast<T*>(bytes.data() + offset.value()), static_cast<size_t>(count)};
}

}  // namespace motley
