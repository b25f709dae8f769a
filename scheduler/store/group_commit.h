#pragma once
// One writer, many who wait: changes that come within a moment are one transaction, and each is
// acknowledged only when that is on disk.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/result.h"
#include "scheduler/store/database.h"

namespace motley {

/// Thread-safe; owns a connection and the only thread that writes.
class GroupCommit {
 public:
  /// Runs on the writer's thread; what it did is undone, and nothing else, where it fails.
  using Change = std::function<Result<Unit>(Database&)>;
  /// Called on the writer's thread, once, after the change is on disk or has failed.
  using Done = std::function<void(Result<Unit>)>;

  explicit GroupCommit(Database database);
  /// What was handed in before is still written.
  ~GroupCommit();

  void write(Change change, Done done);
  /// Waits for it.
  Result<Unit> write(Change change);

 private:
  struct Wish {
    Change change;
    Done done;
  };
  void work();
  /// All or, where the commit fails, none of them.
  void commit(std::vector<Wish> wishes);
  Result<Unit> apply(const Change& change);

  Database database_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Wish> wishes_;
  bool ending_ = false;
  std::thread writer_;
};

}  // namespace motley
