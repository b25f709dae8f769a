#pragma once
// Notices a call into a library that does not return: nothing but another thread can.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace motley {

class CallWatch {
 public:
  /// `end` gets "MPI_Testsome has not returned for 600 s in barrier", on a thread of the watch's
  /// own. It ends the process; if it returns, the call goes on where it does.
  CallWatch(std::chrono::nanoseconds limit, std::function<void(const std::string& stuck)> end)
      : limit_(limit),
        end_(std::move(end)),
        thread_([this](const std::stop_token& stop) { watch(stop); }) {}

  /// While it lives, its thread is inside `function`; one at a time. Borrows both.
  class Call {
   public:
    Call(CallWatch& watch, const char* function, const std::string& operation)
        : watch_(watch), turn_(watch.turn_.load(std::memory_order_relaxed) + 1) {
      watch.function_ = function;
      watch.operation_ = &operation;
      watch.turn_.store(turn_, std::memory_order_release);
    }
    ~Call() {
      uint64_t mine = turn_;
      if (watch_.turn_.compare_exchange_strong(mine, turn_ + 1)) return;
      watch_.turn_.wait(kClaimed);  // the watch is reading what this call is
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    CallWatch& watch_;
    const uint64_t turn_;
  };

 private:
  /// Counted instead of time, so that a process that was stopped for a while is not taken for
  /// stuck.
  static constexpr int kLooks = 20;
  static constexpr uint64_t kClaimed = ~uint64_t{0};

  void watch(const std::stop_token& stop) {
    uint64_t seen = 0;
    int looks = 0;
    std::mutex mutex;
    std::unique_lock lock(mutex);
    while (!stopped_.wait_for(lock, stop, limit_ / kLooks, [&] { return stop.stop_requested(); })) {
      const uint64_t now = turn_.load(std::memory_order_acquire);
      const bool inside = now % 2 == 1;
      looks = inside && now == seen ? looks + 1 : 0;
      seen = now;
      if (looks >= kLooks) end_call(now);
    }
  }

  void end_call(uint64_t turn) {
    uint64_t expected = turn;
    if (!turn_.compare_exchange_strong(expected, kClaimed)) return;  // it has returned just now
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%g", std::chrono::duration<double>(limit_).count());
    end_(std::string(function_) + " has not returned for " + seconds + " s in " + *operation_);
    turn_.store(turn + 1);
    turn_.notify_all();
  }

  const std::chrono::nanoseconds limit_;
  const std::function<void(const std::string&)> end_;
  std::atomic<uint64_t> turn_{0};  ///< odd inside a call
  const char* function_ = "";
  const std::string* operation_ = nullptr;
  std::condition_variable_any stopped_;
  std::jthread thread_;  ///< ends before the rest goes
};

}  // namespace motley
