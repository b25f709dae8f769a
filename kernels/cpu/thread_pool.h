#pragma once
// Threads that share the work of one kernel at a time.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace motley {

/// Threads of a CPU device. The thread that calls run() works too, as thread 0; the others sleep
/// between calls. One thread drives a pool.
class ThreadPool {
 public:
  using Body = std::function<void(int64_t index, int thread)>;

  /// Starts threads - 1 threads; threads >= 1.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(index, thread) once for each index in [0, count), thread in [0, threads()), and
  /// returns when all calls have. Which thread gets which index varies. A call from inside a body
  /// is a bug, and checked.
  void run(int64_t count, const Body& body);

 private:
  struct Job;

  void serve(int thread);

  std::mutex mutex_;
  std::condition_variable wake_;      ///< a job was posted, or the pool closes
  std::condition_variable finished_;  ///< the last worker left the job
  Job* job_ = nullptr;                ///< guarded by mutex_; null: no job takes new workers
  uint64_t posted_ = 0;               ///< guarded by mutex_: number of jobs ever posted
  bool closing_ = false;              ///< guarded by mutex_
  bool running_ = false;              ///< of the driving thread: a run() is in progress
  std::vector<std::thread> workers_;
};

}  // namespace motley
