#include "worker/engine/shared_memory.h"

#include <algorithm>

namespace motley {

Result<SharedMemory> SharedMemory::allocate(Device& device, Bytes size, MemoryAccount& account,
                                            Placement placement) {
  const bool managed = placement == Placement::kManaged;
  SharedMemory memory;
  memory.device_ = &device;
  memory.size_ = size;
  memory.in_place_ = managed || device.host_accessible();
  if (managed && !device.host_accessible()) memory.use_ = MemoryUse::kHost;
  MOTLEY_TRY(memory.buffer_, managed ? device.allocate_managed(size) : device.allocate(size));
  memory.charge_ = MemoryCharge(account, memory.use_, size);
  if (!memory.in_place_) memory.copy_ = CountedMemory(account, MemoryUse::kHost, size);
  return memory;
}

Result<PinnedMemory> PinnedMemory::allocate(Device& device, Bytes size, MemoryAccount& account) {
  PinnedMemory memory;
  MOTLEY_TRY(memory.buffer_, device.allocate_pinned(size));
  memory.charge_ = MemoryCharge(account, MemoryUse::kHost, size);
  std::fill(memory.bytes().begin(), memory.bytes().end(), std::byte{0});
  return memory;
}

std::span<std::byte> SharedMemory::host() {
  if (in_place_) return {device(), static_cast<size_t>(size_.value())};
  return copy_.bytes();
}

Result<std::span<std::byte>> SharedMemory::pull(Bytes offset, Bytes size) {
  MOTLEY_TRY_VOID(device_->synchronize());
  const std::span<std::byte> part =
      host().subspan(static_cast<size_t>(offset.value()), static_cast<size_t>(size.value()));
  if (!in_place_) MOTLEY_TRY_VOID(device_->copy_out(part, device() + offset.value()));
  return part;
}

Result<Unit> SharedMemory::push(Bytes offset, Bytes size) {
  if (in_place_) return Unit{};
  const std::span<std::byte> part =
      host().subspan(static_cast<size_t>(offset.value()), static_cast<size_t>(size.value()));
  return device_->copy_in(device() + offset.value(), part);
}

void host_for(Device& device, int64_t count, const std::function<void(int64_t index)>& body) {
  if (device.host_accessible()) {
    device.parallel_for(count, [&](int64_t index, int) { body(index); });
    return;
  }
  for (int64_t index = 0; index < count; ++index) body(index);
}

}  // namespace motley
