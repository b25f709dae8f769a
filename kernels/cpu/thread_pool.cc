#include "kernels/cpu/thread_pool.h"

#include <atomic>

#include "core/check.h"

namespace motley {

struct ThreadPool::Job {
  const Body& body;
  const int64_t count;
  std::atomic<int64_t> next{0};
  int workers = 0;  ///< besides the driving thread; guarded by the pool's mutex

  void work(int thread) {
    for (int64_t index; (index = next.fetch_add(1, std::memory_order_relaxed)) < count;)
      body(index, thread);
  }
};

ThreadPool::ThreadPool(int threads) {
  MOTLEY_CHECK_LE(1, threads);
  for (int thread = 1; thread < threads; ++thread)
    workers_.emplace_back([this, thread] { serve(thread); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

// A worker that wakes too late finds the job withdrawn and sleeps again, so run() waits only for
// those that took part: on a crowded machine a sleeping thread costs nothing.
void ThreadPool::run(int64_t count, const Body& body) {
  MOTLEY_CHECK(!running_, "parallel_for inside parallel_for");
  running_ = true;
  Job job{body, count};
  if (count > 1 && !workers_.empty()) {
    {
      std::lock_guard lock(mutex_);
      job_ = &job;
      ++posted_;
    }
    wake_.notify_all();
    job.work(0);
    std::unique_lock lock(mutex_);
    job_ = nullptr;
    finished_.wait(lock, [&] { return job.workers == 0; });
  } else {
    job.work(0);
  }
  running_ = false;
}

void ThreadPool::serve(int thread) {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return closing_ || (job_ != nullptr && posted_ != seen); });
    if (closing_) return;
    seen = posted_;
    Job& job = *job_;
    ++job.workers;
    lock.unlock();
    job.work(thread);
    lock.lock();
    if (--job.workers == 0) finished_.notify_one();
  }
}

}  // namespace motley
