#include "scheduler/store/group_commit.h"

#include <future>
#include <utility>

namespace motley {

GroupCommit::GroupCommit(Database database)
    : database_(std::move(database)), writer_([this] { work(); }) {}

GroupCommit::~GroupCommit() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  writer_.join();
}

void GroupCommit::write(Change change, Done done) {
  {
    const std::lock_guard lock(mutex_);
    wishes_.push_back({std::move(change), std::move(done)});
  }
  wake_.notify_one();
}

Result<Unit> GroupCommit::write(Change change) {
  std::promise<Result<Unit>> promise;
  write(std::move(change),
        [&promise](Result<Unit> result) { promise.set_value(std::move(result)); });
  return promise.get_future().get();
}

/// While one transaction is written to disk the next one gathers: nobody waits for company.
void GroupCommit::work() {
  while (true) {
    std::vector<Wish> wishes;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return ending_ || !wishes_.empty(); });
      if (wishes_.empty()) return;
      wishes.swap(wishes_);
    }
    commit(std::move(wishes));
  }
}

void GroupCommit::commit(std::vector<Wish> wishes) {
  Result<Unit> whole = database_.execute("BEGIN IMMEDIATE");
  std::vector<Result<Unit>> results;
  for (const Wish& wish : wishes) {
    results.push_back(whole ? apply(wish.change) : whole);
    // Some failures, a full disk for one, undo all of it: what follows must not be kept alone.
    if (whole && !database_.in_transaction()) whole = results.back();
  }
  if (whole) whole = database_.execute("COMMIT");
  // Whether a commit that failed is on disk or not nobody knows: it is not tried again.
  if (!whole) (void)database_.execute("ROLLBACK");
  for (size_t i = 0; i < wishes.size(); ++i)
    wishes[i].done(results[i] && !whole ? whole : std::move(results[i]));
}

Result<Unit> GroupCommit::apply(const Change& change) {
  MOTLEY_TRY_VOID(database_.execute("SAVEPOINT change"));
  Result<Unit> result = change(database_);
  if (!result) MOTLEY_TRY_VOID(database_.execute("ROLLBACK TO change"));
  MOTLEY_TRY_VOID(database_.execute("RELEASE change"));
  return result;
}

}  // namespace motley
