#include "scheduler/service/retention.h"

#include <utility>

#include "scheduler/store/speed_store.h"

namespace motley {
namespace {

constexpr int kJobsAtOnce = 16;
constexpr int kEventsAtOnce = 500;

}  // namespace

void Retention::remove(int64_t id, Coordinator::Answered done) {
  const auto job = find_job(around_.kept, id);
  if (!job) return done(fail(job.error()));
  const JobState state = job->status.state;
  if (!is_final(state))
    return done(fail(ErrorCode::kNotPermitted,
                     "job " + std::to_string(id) + " has not ended: it is " + name_of(state)));
  if (const auto heir = around_.coordinator.heir_of(id))
    return done(fail(ErrorCode::kNotPermitted, "job " + std::to_string(*heir) +
                                                   ", which has not ended, goes on from what job " +
                                                   std::to_string(id) + " has saved"));
  around_.remover.remove(around_.directory.job(id), [this, id, state, done = std::move(done)](
                                                        Result<Unit> removed) mutable {
    if (!removed) return done(std::move(removed));
    around_.store.write([id](Database& database) { return remove_job(database, id); },
                        [this, state, done = std::move(done)](Result<Unit> written) {
                          if (written) around_.coordinator.count_removed(state);
                          done(std::move(written));
                        });
  });
}

void Retention::sweep() {
  if (sweeping_ || keep_ == Nanos(0)) return;
  auto old = jobs_ended_before(around_.kept, around_.wall_time() - keep_.value(), kJobsAtOnce);
  if (!old) return;
  sweeping_ = true;
  more_ = old->size() == kJobsAtOnce;
  remove_next(std::move(*old));
}

void Retention::remove_next(std::vector<int64_t> jobs) {
  if (jobs.empty()) return remove_old_events();
  const int64_t job = jobs.back();
  jobs.pop_back();
  remove(job, [this, jobs = std::move(jobs)](const Result<Unit>& removed) mutable {
    // The next sweep tries again. One that is still needed keeps no other; a full disk does.
    if (!removed) more_ = false;
    if (!removed && removed.error().code != ErrorCode::kNotPermitted) jobs.clear();
    remove_next(std::move(jobs));
  });
}

/// Of jobs that have not ended, too; and what was measured so long ago.
void Retention::remove_old_events() {
  around_.store.write(
      [before = around_.wall_time() - keep_.value()](Database& database) -> Result<Unit> {
        MOTLEY_TRY_VOID(remove_speeds(database, before));
        return remove_events(database, before, kEventsAtOnce);
      },
      [this](const Result<Unit>&) {
        sweeping_ = false;
        if (more_) sweep();
      });
}

}  // namespace motley
