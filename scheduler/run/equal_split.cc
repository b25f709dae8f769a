#include "scheduler/run/equal_split.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/json_file.h"
#include "planner/search.h"
#include "scheduler/launch/remote_hosts.h"
#include "scheduler/run/given_plan.h"

namespace motley {
namespace {

constexpr int64_t kTrialSteps = 8;
constexpr int kTrialWarmUp = 2;
constexpr const char* kFile = "equal_split.json";

/// The job cut down to a few steps that leave nothing behind.
JobSpec trial_job(JobSpec job) {
  job.train.steps = std::min(job.train.steps, kTrialSteps);
  job.train.eval = EvalSpec{.every = 0, .samples = 1};
  job.checkpoint = CheckpointSpec{};
  return job;
}

Result<Unit> remember(const RunDirectory& run, const std::optional<EqualSplit>& found) {
  nlohmann::json document = {{"form", nullptr}, {"samples_per_second", nullptr}};
  if (found) document = {{"form", found->form}, {"samples_per_second", found->samples_per_second}};
  return run.write(kFile, document.dump() + "\n");
}

}  // namespace

Result<Plan> equal_split_plan(const PlanRequest& request) {
  return plan_equal_split(
      request, [&](const Plan& plan) { return count_memory(plan, request.job, request.fleet); });
}

std::optional<EqualSplit> remembered_equal_split(const RunDirectory& run) {
  const auto document = read_json_file(real_file_system(), run.file(kFile), ErrorCode::kCorrupt);
  if (!document || !document->is_object()) return std::nullopt;
  const auto form = document->find("form"), speed = document->find("samples_per_second");
  if (form == document->end() || !form->is_string()) return std::nullopt;
  if (speed == document->end() || !speed->is_number()) return std::nullopt;
  return EqualSplit{form->get<std::string>(), speed->get<double>()};
}

Result<std::optional<EqualSplit>> try_equal_split(const EqualSplitRequest& request,
                                                  SignalInbox& signals, ProgressLine& line) {
  const auto plan = equal_split_plan({request.job, request.fleet, request.profile});
  if (!plan) {
    line.note("no equal split is possible: " + plan.error().message);
    MOTLEY_TRY_VOID(remember(request.run, std::nullopt));
    return std::optional<EqualSplit>();
  }
  Attempt attempt;
  attempt.run_dir = request.run.file("equal_split");
  attempt.job = trial_job(request.job);
  attempt.fleet = request.fleet;
  attempt.plan = *plan;
  attempt.resume_checkpoint = "none";
  AttemptOptions options;
  options.directory = attempt.run_dir;
  options.rsh_agent = request.rsh_agent;
  options.lock_fd = request.run.lock_fd();
  options.on_signal = OnSignal::kKill;
  options.title = "trying an equal split, for comparison: ";
  FileSystem& fs = real_file_system();
  MOTLEY_TRY_VOID(fs.remove_all(attempt.run_dir));
  MOTLEY_TRY(const AttemptRecord record, run_training_attempt(attempt, options, signals, line));
  if (record.followed.signal != 0)
    return fail(ErrorCode::kStopped, "interrupted before training began");
  if (!record.finished()) return fail(record.followed.end.error);
  MOTLEY_TRY_VOID(fs.remove_all(attempt.run_dir));
  remove_on(remote_hosts(attempt.plan.ranks), {attempt.run_dir}, request.rsh_agent);
  const auto seconds = record.statistics.median_step_seconds(kTrialWarmUp);
  std::optional<EqualSplit> found;
  if (const SectionCount paced = record.statistics.paced(); !paced.trustworthy())
    line.note("no equal split to compare with: " + untrustworthy_text(paced));
  else if (seconds && *seconds > 0)
    found = EqualSplit{equal_split_form(*plan), request.job.train.global_batch / *seconds};
  MOTLEY_TRY_VOID(remember(request.run, found));
  return found;
}

}  // namespace motley
