#include "worker/engine/shared_memory.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "core/check.h"

namespace motley {
namespace {

/// Of a MemoryWindow: large enough that copies of it run at full speed.
constexpr Bytes kWindow{8 << 20};

/// More threads than this gain little beside a device, on a host that other ranks share.
constexpr int64_t kMostHostThreads = 8;

}  // namespace

// --- pinned memory

Result<PinnedMemory> PinnedMemory::allocate(Device& device, Bytes size, MemoryAccount& account) {
  PinnedMemory memory;
  MOTLEY_TRY(memory.buffer_, device.allocate_pinned(size));
  memory.charge_ = MemoryCharge(account, MemoryUse::kHost, size);
  if (size > Bytes(0)) std::memset(memory.buffer_.data(), 0, static_cast<size_t>(size.value()));
  return memory;
}

// --- shared memory

Result<SharedMemory> SharedMemory::allocate(Device& device, Bytes size, MemoryAccount& account,
                                            Placement placement) {
  const bool managed = placement == Placement::kManaged;
  SharedMemory memory;
  memory.device_ = &device;
  memory.account_ = &account;
  memory.size_ = size;
  memory.in_place_ = managed || device.host_accessible();
  if (managed && !device.host_accessible()) memory.use_ = MemoryUse::kHost;
  MOTLEY_TRY(memory.buffer_, managed ? device.allocate_managed(size) : device.allocate(size));
  memory.charge_ = MemoryCharge(account, memory.use_, size);
  return memory;
}

Result<Unit> SharedMemory::have_view() {
  if (has_view() || size_ == Bytes(0)) return Unit{};
  MOTLEY_TRY(view_, PinnedMemory::allocate(*device_, size_, *account_));
  return Unit{};
}

std::span<std::byte> SharedMemory::host() const {
  if (in_place_) return {device(), static_cast<size_t>(size_.value())};
  MOTLEY_CHECK(has_view() || size_ == Bytes(0), "a host view that nobody asked for");
  return view_.bytes();
}

Result<std::span<std::byte>> SharedMemory::pull(Bytes offset, Bytes size) {
  MOTLEY_TRY_VOID(enqueue_pull(offset, size));
  MOTLEY_TRY_VOID(device_->synchronize());
  return host(offset, size);
}

Result<Unit> SharedMemory::enqueue_pull(Bytes offset, Bytes size) {
  if (in_place_) return Unit{};
  MOTLEY_TRY_VOID(have_view());
  return device_->enqueue_copy_out(host(offset, size), device() + offset.value());
}

Result<Unit> SharedMemory::enqueue_push(Bytes offset, Bytes size) {
  if (in_place_) return Unit{};
  return device_->enqueue_copy_in(device() + offset.value(), host(offset, size));
}

Result<Unit> SharedMemory::pull_beside(Bytes offset, Bytes size, StreamMark& after,
                                       StreamMark& done) {
  if (in_place_) return Unit{};
  return device_->copy_out_beside(host(offset, size), device() + offset.value(), after, done);
}

Result<Unit> SharedMemory::push_beside(Bytes offset, Bytes size, StreamMark& after,
                                       StreamMark& done) {
  if (in_place_) return Unit{};
  return device_->copy_in_beside(device() + offset.value(), host(offset, size), after, done);
}

// --- the window

Result<MemoryWindow> MemoryWindow::create(Device& device) {
  MemoryWindow window(device);
  if (!device.host_accessible()) {
    MOTLEY_TRY(window.buffer_, device.allocate_pinned(kWindow));
  }
  return window;
}

/// Everything from `offset` on that the window shows.
Result<std::span<std::byte>> MemoryWindow::at(const SharedMemory& memory, Bytes offset) {
  if (memory.in_place()) {
    MOTLEY_TRY_VOID(device_->synchronize());  // it may be at work on managed memory
    return memory.host().subspan(static_cast<size_t>(offset.value()));
  }
  std::byte* const wanted = memory.device() + offset.value();
  auto* const window = static_cast<std::byte*>(buffer_.data());
  if (over_ == nullptr || wanted < over_ || wanted >= over_ + shown_) {
    MOTLEY_TRY_VOID(flush());
    over_ = nullptr;
    shown_ = std::min(kWindow, memory.size() - offset).value();
    MOTLEY_TRY_VOID(device_->copy_out({window, static_cast<size_t>(shown_)}, wanted));
    over_ = wanted;
  }
  const int64_t from = wanted - over_;
  return std::span(window + from, static_cast<size_t>(shown_ - from));
}

Result<Unit> MemoryWindow::read(const SharedMemory& memory, Bytes offset,
                                std::span<std::byte> into) {
  while (!into.empty()) {
    MOTLEY_TRY(const std::span<std::byte> shown, at(memory, offset));
    const size_t count = std::min(shown.size(), into.size());
    std::memcpy(into.data(), shown.data(), count);
    into = into.subspan(count);
    offset += Bytes(static_cast<int64_t>(count));
  }
  return Unit{};
}

Result<Unit> MemoryWindow::write(const SharedMemory& memory, Bytes offset,
                                 std::span<const std::byte> from) {
  while (!from.empty()) {
    MOTLEY_TRY(const std::span<std::byte> shown, at(memory, offset));
    const size_t count = std::min(shown.size(), from.size());
    std::memcpy(shown.data(), from.data(), count);
    changed_ = changed_ || !memory.in_place();
    from = from.subspan(count);
    offset += Bytes(static_cast<int64_t>(count));
  }
  return Unit{};
}

Result<Unit> MemoryWindow::flush() {
  if (!std::exchange(changed_, false) || device_->host_accessible()) return Unit{};
  return device_->copy_in(over_,
                          {static_cast<std::byte*>(buffer_.data()), static_cast<size_t>(shown_)});
}

Result<Unit> MemoryWindow::each_piece(const SharedMemory& memory, Bytes offset, Bytes size,
                                      const std::function<void(std::span<const std::byte>)>& body) {
  const Bytes end = offset + size;
  while (offset < end) {
    MOTLEY_TRY_VOID(flush());
    forget();  // so that it shows as much as it can
    MOTLEY_TRY(const std::span<std::byte> shown, at(memory, offset));
    const auto count = std::min(shown.size(), static_cast<size_t>((end - offset).value()));
    body(shown.first(count));
    offset += Bytes(static_cast<int64_t>(count));
  }
  return Unit{};
}

// --- host threads

void host_for(Device& device, int64_t count, const std::function<void(int64_t index)>& body) {
  if (device.host_accessible()) {
    device.parallel_for(count, [&](int64_t index, int) { body(index); });
    return;
  }
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t index = next++; index < count; index = next++) body(index);
  };
  std::vector<std::thread> others;
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  for (int64_t i = 1; i < std::min({cores, count, kMostHostThreads}); ++i)
    others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
}

}  // namespace motley
