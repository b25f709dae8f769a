#include "tests/support/cuda_on_host/device_threads.h"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace motley::cuda_on_host {
namespace {

constexpr int kWarp = 32;
constexpr size_t kStackBytes = size_t{128} << 10;

/// One flow of control: a fiber, or the scheduler that resumes them.
struct Flow {
  std::array<void*, 5> left{};  // where it goes on, of __builtin_setjmp
  ucontext_t beginning{};       // of a fiber that has not begun
  bool begun = true;
  std::unique_ptr<std::byte[]> stack;  // null: the caller's own
  const void* bottom = nullptr;
  size_t size = 0;
};

/// Goes on with `to`. Not swapcontext(), which asks the kernel twice.
[[gnu::noinline, gnu::no_sanitize_address]] void jump(Flow& from, Flow& to) {
  if (__builtin_setjmp(from.left.data()) != 0) return;
  if (std::exchange(to.begun, true)) __builtin_longjmp(to.left.data(), 1);
  setcontext(&to.beginning);
}

/// Leaves `from` for `to`; returns when somebody comes back. The sanitizer is told of both stacks.
void switch_flow(Flow& from, Flow& to) {
#ifdef __SANITIZE_ADDRESS__
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, to.bottom, to.size);
  jump(from, to);
  __sanitizer_finish_switch_fiber(fake_stack, &to.bottom,
                                  &to.size);  // a fiber only leaves for main
#else
  jump(from, to);
#endif
}

struct Warp {
  int alive = 0, waiting = 0;
  std::array<std::array<std::byte, kWarp * kMostExchanged>, 2> given;
};

struct Thread {
  Flow* flow = nullptr;
  int exchanges = 0;
  enum class State { kRunning, kAtBlockBarrier, kAtWarpBarrier, kDone } state = State::kRunning;
};

bool falling() {
  static const bool value = [] {
    const char* order = std::getenv("MOTLEY_CUDA_ON_HOST_ORDER");
    return order != nullptr && std::string_view(order) == "falling";
  }();
  return value;
}

/// The threads of one block at a time.
class Scheduler {
 public:
  void run_grid(Extent3 grid, Extent3 block, size_t shared_bytes,
                const std::function<void()>& body);
  const Place& place() const { return place_; }
  int lane() const { return running_ % kWarp; }
  std::byte* shared() { return shared_.data(); }
  void block_barrier();
  const std::byte* warp_exchange(const void* mine, size_t size);

 private:
  static void fiber_main();
  void run_block();
  void run_threads();
  void enter(int thread);
  void finish(int thread);
  void wait_as(Thread::State state);
  void release_block();
  void release_warp(int warp);
  Flow* idle_fiber();
  int in_order(int64_t number, int64_t count) const {
    return static_cast<int>(falling() ? count - 1 - number : number);
  }

  Place place_;
  const std::function<void()>* body_ = nullptr;
  std::vector<std::byte> shared_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::deque<int> ready_;  // released from a barrier
  int started_ = 0, alive_ = 0, at_block_barrier_ = 0, running_ = 0;
  Flow main_;
  Flow* current_ = nullptr;
  std::vector<std::unique_ptr<Flow>> fibers_;
  std::vector<Flow*> idle_;
};

Scheduler& scheduler() {
  static Scheduler instance;
  return instance;
}

Index3 index_in(Extent3 extent, int64_t number) {
  return {static_cast<unsigned>(number % extent.x),
          static_cast<unsigned>(number / extent.x % extent.y),
          static_cast<unsigned>(number / extent.x / extent.y)};
}

void Scheduler::run_grid(Extent3 grid, Extent3 block, size_t shared_bytes,
                         const std::function<void()>& body) {
  place_.grid_extent = grid;
  place_.block_extent = block;
  body_ = &body;
  shared_.resize(shared_bytes);
  for (int64_t number = 0; number < grid.count(); ++number) {
    place_.block = index_in(grid, falling() ? grid.count() - 1 - number : number);
    std::fill(shared_.begin(), shared_.end(), std::byte{0xff});
    run_block();
  }
}

void Scheduler::run_block() {
  const auto count = static_cast<int>(place_.block_extent.count());
  threads_.assign(static_cast<size_t>(count), Thread());
  warps_.resize(static_cast<size_t>((count + kWarp - 1) / kWarp));
  for (size_t warp = 0; warp < warps_.size(); ++warp) {
    warps_[warp].alive = std::min(kWarp, count - static_cast<int>(warp) * kWarp);
    warps_[warp].waiting = 0;
  }
  started_ = 0;
  at_block_barrier_ = 0;
  alive_ = count;
  while (alive_ > 0) {
    Flow* next = nullptr;
    if (!ready_.empty()) {
      running_ = ready_.front();
      ready_.pop_front();
      next = threads_[static_cast<size_t>(running_)].flow;
    } else {
      MOTLEY_CHECK(started_ < count, "the threads of a block wait at different barriers");
      next = idle_fiber();
    }
    current_ = next;
    switch_flow(main_, *next);
  }
}

/// Every fiber's life: threads that have not begun, one after the other, for ever.
void Scheduler::fiber_main() {
  Scheduler& self = scheduler();
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(nullptr, &self.main_.bottom, &self.main_.size);
#endif
  while (true) {
    self.run_threads();
    Flow* mine = self.current_;
    self.idle_.push_back(mine);
    switch_flow(*mine, self.main_);
  }
}

void Scheduler::run_threads() {
  while (ready_.empty() && started_ < static_cast<int>(threads_.size())) {
    const int thread = in_order(started_++, static_cast<int64_t>(threads_.size()));
    threads_[static_cast<size_t>(thread)].flow = current_;
    enter(thread);
    (*body_)();
    finish(running_);
  }
}

void Scheduler::enter(int thread) {
  running_ = thread;
  place_.thread = index_in(place_.block_extent, thread);
}

void Scheduler::finish(int thread) {
  threads_[static_cast<size_t>(thread)].state = Thread::State::kDone;
  --alive_;
  Warp& warp = warps_[static_cast<size_t>(thread / kWarp)];
  --warp.alive;
  if (warp.alive > 0 && warp.waiting == warp.alive) release_warp(thread / kWarp);
  if (alive_ > 0 && at_block_barrier_ == alive_) release_block();
}

void Scheduler::wait_as(Thread::State state) {
  const int thread = running_;
  threads_[static_cast<size_t>(thread)].state = state;
  switch_flow(*current_, main_);
  enter(thread);
}

void Scheduler::release_block() {
  at_block_barrier_ = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(threads_.size()); ++i) {
    const int number = in_order(i, static_cast<int64_t>(threads_.size()));
    Thread& thread = threads_[static_cast<size_t>(number)];
    if (thread.state != Thread::State::kAtBlockBarrier) continue;
    thread.state = Thread::State::kRunning;
    ready_.push_back(number);
  }
}

void Scheduler::release_warp(int warp) {
  warps_[static_cast<size_t>(warp)].waiting = 0;
  for (int i = 0; i < kWarp; ++i) {
    const int number = warp * kWarp + in_order(i, kWarp);
    if (number >= static_cast<int>(threads_.size())) continue;
    Thread& thread = threads_[static_cast<size_t>(number)];
    if (thread.state != Thread::State::kAtWarpBarrier) continue;
    thread.state = Thread::State::kRunning;
    ready_.push_back(number);
  }
}

void Scheduler::block_barrier() {
  if (++at_block_barrier_ == alive_)
    release_block();
  else
    wait_as(Thread::State::kAtBlockBarrier);
}

const std::byte* Scheduler::warp_exchange(const void* mine, size_t size) {
  MOTLEY_CHECK_LE(size, kMostExchanged);
  const int number = running_ / kWarp;
  Warp& warp = warps_[static_cast<size_t>(number)];
  auto& given =
      warp.given[static_cast<size_t>(threads_[static_cast<size_t>(running_)].exchanges++) % 2];
  std::memcpy(given.data() + static_cast<size_t>(lane()) * kMostExchanged, mine, size);
  if (++warp.waiting == warp.alive)
    release_warp(number);
  else
    wait_as(Thread::State::kAtWarpBarrier);
  return given.data();
}

Flow* Scheduler::idle_fiber() {
  if (idle_.empty()) {
    auto flow = std::make_unique<Flow>();
    flow->stack = std::make_unique<std::byte[]>(kStackBytes);
    flow->bottom = flow->stack.get();
    flow->size = kStackBytes;
    flow->begun = false;
    getcontext(&flow->beginning);
    flow->beginning.uc_stack = {.ss_sp = flow->stack.get(), .ss_flags = 0, .ss_size = kStackBytes};
    makecontext(&flow->beginning, &Scheduler::fiber_main, 0);
    idle_.push_back(flow.get());
    fibers_.push_back(std::move(flow));
  }
  Flow* fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

}  // namespace

void run_grid(Extent3 grid, Extent3 block, size_t shared_bytes, const std::function<void()>& body) {
  static std::mutex one_at_a_time;
  const std::scoped_lock lock(one_at_a_time);
  scheduler().run_grid(grid, block, shared_bytes, body);
}

const Place& place() { return scheduler().place(); }
void block_barrier() { scheduler().block_barrier(); }
const std::byte* warp_exchange(const void* mine, size_t size) {
  return scheduler().warp_exchange(mine, size);
}
int lane() { return scheduler().lane(); }
std::byte* dynamic_shared() { return scheduler().shared(); }

}  // namespace motley::cuda_on_host
