// What becomes a job, and what is changed of one afterwards.

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/spec/job_update.h"
#include "core/spec/json.h"
#include "scheduler/service/coordinator.h"
#include "scheduler/service/event_text.h"

namespace motley {
namespace {

/// One that goes on from a task of an array does what that did, but is alone.
bool is_of_array(const JobSpec& spec) {
  return spec.array.size > 0 && spec.service.resumes.job == 0;
}

/// What is kept of it besides where it stands.
StoredJob stored_spec(const JobSpec& spec) {
  StoredJob stored;
  stored.name = spec.name;
  stored.queue = spec.service.queue;
  stored.priority = spec.service.priority;
  stored.spec = to_json(spec).dump();
  stored.labels = spec.service.labels;
  if (is_of_array(spec)) {
    stored.array.index = spec.array.index;
    stored.array.size = spec.array.size;
  }
  return stored;
}

std::string submitted_text(const JobSpec& spec, const std::string& by) {
  const Resumes& resumes = spec.service.resumes;
  if (resumes.job == 0) return "submitted";
  return "submitted" + by_whom(by) + " to go on from job " + std::to_string(resumes.job) +
         (resumes.step == 0 ? "" : ", step " + std::to_string(resumes.step));
}

struct Added {
  int64_t first = 0;
  bool is_new = false;
};

}  // namespace

Result<Unit> Coordinator::check_submission(const Submission& submission, bool repeated) const {
  // What was acknowledged once stays so, whatever devices there are by now.
  if (repeated) return Unit{};
  for (const JobSpec& spec : submission.jobs) {
    const bool no_node_yet = devices_.fleet().devices.empty();
    if (!no_node_yet) MOTLEY_TRY_VOID(devices_.could_ever(spec));
    for (const int64_t before : spec.service.after)
      if (const auto follows = can_follow(before); !follows)
        return fail(ErrorCode::kInvalidSpec, follows.error().message, place_of(spec, "after"));
  }
  return Unit{};
}

/// Whether a job that comes after that one could ever start.
Result<Unit> Coordinator::can_follow(int64_t before) const {
  const auto state = state_of(before);
  if (!state)
    return fail(ErrorCode::kInvalidSpec, state.error().message + ", which it is to come after");
  const std::string why = why_not_after(before, *state);
  if (!why.empty()) return fail(ErrorCode::kInvalidSpec, why);
  return Unit{};
}

/// Before it has a number.
Result<Coordinator::Job> Coordinator::first_of(const JobSpec& spec, const Submission& submission) {
  MOTLEY_TRY(auto left, dependencies(spec.service.after));
  JobFsm fsm(RetryRule{.most_restarts = spec.retry.max_restarts});
  if (submission.held) fsm.on(HoldAsked{}, now());
  // One that has failed meanwhile: the job is kept before it is cancelled, a repeated key finds it.
  if (!left.failed.empty()) left = {1, {}};
  if (!spec.service.after.empty()) fsm.on(left, now());
  return make_job(0, std::make_shared<const JobSpec>(spec), submission.owner, std::move(fsm));
}

void Coordinator::submit(Submission submission, Submitted done) {
  if (broken_) return done(fail(*broken_));
  const auto repeated = key_is_known(around_.kept, submission.key);
  if (!repeated) return done(fail(repeated.error()));
  if (const auto fits = check_submission(submission, *repeated); !fits)
    return done(fail(fits.error()));
  std::vector<StoredJob> stored;
  std::vector<Job> jobs;
  for (const JobSpec& spec : submission.jobs) {
    auto job = first_of(spec, submission);
    if (!job) return done(fail(job.error()));
    StoredJob& kept = stored.emplace_back(stored_spec(spec));
    kept.owner = submission.owner;
    kept.submitted = around_.wall_time();
    kept.status = job->fsm.status();
    jobs.push_back(*std::move(job));
  }
  stored.front().key = submission.key;
  auto added = std::make_shared<Added>();
  around_.store.write(
      [added, stored = std::move(stored),
       text = submitted_text(submission.jobs.front(), submission.by)](
          Database& database) -> Result<Unit> {
        MOTLEY_TRY(added->first, add_jobs(database, stored, &added->is_new));
        for (size_t i = 0; added->is_new && i < stored.size(); ++i)
          MOTLEY_TRY_VOID(add_event(database, added->first + static_cast<int64_t>(i),
                                    stored[i].submitted, text));
        return Unit{};
      },
      [this, added, jobs = std::move(jobs), done = std::move(done)](Result<Unit> written) mutable {
        if (!written) {
          // A key that belongs to another job is the submitter's mistake, not the disk's.
          if (written.error().code == ErrorCode::kUsage) return done(fail(written.error()));
          break_off(written.error());
          return done(fail(*broken_));
        }
        ++counters_.submissions;
        for (size_t i = 0; added->is_new && i < jobs.size(); ++i) {
          jobs[i].id = added->first + static_cast<int64_t>(i);
          if (is_of_array(*jobs[i].spec)) jobs[i].array = added->first;
          accept(std::move(jobs[i]));
        }
        done(added->first);
      });
}

void Coordinator::accept(Job job) {
  const int64_t id = job.id;
  ++counters_.jobs[job.fsm.status().state];
  enter(std::move(job));
  // Those that it comes after may have ended.
  Job& entered = jobs_.at(id);
  if (entered.after.empty()) return;
  if (const auto left = dependencies(entered.after)) apply(entered, *left);
}

/// Whether one of `after`, or what it waits for itself, is that job.
bool Coordinator::comes_after(const std::vector<int64_t>& after, int64_t job) const {
  std::set<int64_t> seen;
  std::vector<int64_t> next = after;
  while (!next.empty()) {
    const int64_t id = next.back();
    next.pop_back();
    if (id == job) return true;
    const auto found = jobs_.find(id);
    if (found == jobs_.end() || !seen.insert(id).second) continue;
    next.insert(next.end(), found->second.after.begin(), found->second.after.end());
  }
  return false;
}

Result<Unit> Coordinator::check_update(const Job& job, const JobSpec& spec,
                                       const std::vector<Override>& changes) const {
  bool of_start = false;
  for (const Override& change : changes) {
    of_start |= concerns_start(change.path);
    if (concerns_start(change.path) && !job.devices.empty())
      return fail(ErrorCode::kNotPermitted,
                  "'" + change.path + "' cannot be changed while job " + std::to_string(job.id) +
                      " has devices (motley hold " + std::to_string(job.id) + " first)");
  }
  if (!of_start) return Unit{};
  if (!devices_.fleet().devices.empty()) MOTLEY_TRY_VOID(devices_.could_ever(spec));
  for (const int64_t before : spec.service.after)
    if (std::find(job.after.begin(), job.after.end(), before) == job.after.end())
      MOTLEY_TRY_VOID(can_follow(before));
  if (comes_after(spec.service.after, job.id))
    return fail(ErrorCode::kInvalidSpec,
                "'after': job " + std::to_string(job.id) + " would wait for itself");
  return Unit{};
}

void Coordinator::update(int64_t id, const std::vector<Override>& changes, Answered done,
                         const std::string& by) {
  if (broken_) return done(fail(*broken_));
  const auto standing = find_unended(id);
  if (!standing) return done(fail(standing.error()));
  Job& job = **standing;
  const auto spec = updated_job(*job.spec, changes);
  if (!spec) return done(fail(spec.error()));
  if (const auto allowed = check_update(job, *spec, changes); !allowed)
    return done(fail(allowed.error()));
  const std::string text = update_text(*job.spec, *spec, by);
  StoredJob stored = stored_spec(*spec);
  stored.id = id;
  for (const int64_t before : job.after) forget_dependent(before, id);
  adopt(std::make_shared<const JobSpec>(*spec), job);
  const bool of_start = std::any_of(changes.begin(), changes.end(), [](const Override& change) {
    return concerns_start(change.path);
  });
  if (of_start) forget_unfit(job);
  note_dependent(job);
  job.fsm = JobFsm(RetryRule{.most_restarts = spec->retry.max_restarts}, job.fsm.status());
  undecided_ = true;
  around_.store.write(
      [stored, text, wall = around_.wall_time()](Database& database) -> Result<Unit> {
        if (text.empty()) return Unit{};
        MOTLEY_TRY_VOID(save_spec(database, stored));
        return add_event(database, stored.id, wall, text);
      },
      [this, done = std::move(done)](Result<Unit> written) {
        if (!written) {
          break_off(written.error());
          written = fail(*broken_);
        }
        done(std::move(written));
      });
  if (!job.devices.empty()) wake_in_attempt(job);
  if (const auto left = dependencies(job.after)) apply(job, *left);
}

}  // namespace motley
