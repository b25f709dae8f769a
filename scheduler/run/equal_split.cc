#include "scheduler/run/equal_split.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/json_file.h"
#include "planner/plain/search.h"
#include "scheduler/launch/remote_hosts.h"
#include "scheduler/run/count_memory.h"
#include "scheduler/run/given_plan.h"

namespace motley {
namespace {

constexpr int64_t kTrialSteps = 8, kMostTrialSteps = 64;
constexpr int kTrialWarmUp = 2;
constexpr const char* kFile = "equal_split.json";

/// The job cut down to a few steps that leave nothing behind: such as follow a warm-up, and, unless
/// they are far between, two averages of groups.
JobSpec trial_job(JobSpec job) {
  if (has_warmup(job.parallel.compress.kind)) job.parallel.compress.warmup = 0;
  const int64_t steps = std::max<int64_t>(kTrialSteps, 2 + 2 * int64_t{job.parallel.sync.across});
  job.train.steps = std::min(job.train.steps, std::min(steps, kMostTrialSteps));
  job.train.eval = EvalSpec{.every = 0, .samples = 1};
  job.checkpoint = CheckpointSpec{};
  return job;
}

constexpr const char* kInterrupted = "interrupted before training began";

EqualSplit not_measured(const Error& error) { return {"", 0, error.to_string()}; }

Attempt trial(const EqualSplitRequest& request, const Plan& plan) {
  Attempt attempt;
  attempt.run_dir = request.run.file("equal_split");
  attempt.job = trial_job(request.job);
  attempt.fleet = request.fleet;
  attempt.plan = plan;
  CodecSpec& codec = attempt.plan.compression.codec;
  if (has_warmup(codec.kind)) codec.warmup = attempt.job.parallel.compress.warmup;
  attempt.resume_checkpoint = "none";
  return attempt;
}

/// Its steps. A trial that failed leaves its directory, for its logs.
Result<EqualSplit> measured(const EqualSplitRequest& request, const Plan& plan,
                            SignalInbox& signals, ProgressLine& line) {
  const Attempt attempt = trial(request, plan);
  AttemptOptions options;
  options.directory = attempt.run_dir;
  options.rsh_agent = request.rsh_agent;
  options.lock_fd = request.run.lock_fd();
  options.on_signal = OnSignal::kKill;
  options.title = "trying an equal split, for comparison: ";
  FileSystem& fs = real_file_system();
  MOTLEY_TRY_VOID(fs.remove_all(attempt.run_dir));
  MOTLEY_TRY(const AttemptRecord record, run_training_attempt(attempt, options, signals, line));
  if (record.followed.signal != 0) return fail(ErrorCode::kStopped, kInterrupted);
  if (!record.finished()) return fail(record.followed.end.error);
  MOTLEY_TRY_VOID(fs.remove_all(attempt.run_dir));
  remove_on(remote_hosts(attempt.plan.ranks), {attempt.run_dir}, request.rsh_agent);
  if (const SectionCount paced = record.statistics.paced(); !paced.trustworthy())
    return fail(ErrorCode::kRunFailed, untrustworthy_text(paced));
  const auto seconds = record.statistics.typical_step_seconds(kTrialWarmUp);
  if (!seconds || *seconds <= 0)
    return fail(ErrorCode::kRunFailed, "too few steps to measure their time");
  return EqualSplit{equal_split_form(plan), request.job.train.global_batch / *seconds, ""};
}

nlohmann::json document_of(const EqualSplit& found) {
  if (!found.not_measured.empty())
    return {
        {"form", nullptr}, {"samples_per_second", nullptr}, {"not_measured", found.not_measured}};
  return {{"form", found.form}, {"samples_per_second", found.samples_per_second}};
}

}  // namespace

Result<Plan> equal_split_plan(const PlanRequest& request) {
  return plan_equal_split(
      request, [&](const Plan& plan) { return count_memory(plan, request.job, request.fleet); });
}

std::optional<EqualSplit> remembered_equal_split(const RunDirectory& run) {
  const auto document = read_json_file(real_file_system(), run.file(kFile), ErrorCode::kCorrupt);
  if (!document || !document->is_object()) return std::nullopt;
  if (const auto why = document->find("not_measured"); why != document->end() && why->is_string())
    return EqualSplit{"", 0, why->get<std::string>()};
  const auto form = document->find("form"), speed = document->find("samples_per_second");
  if (form == document->end() || !form->is_string()) return std::nullopt;
  if (speed == document->end() || !speed->is_number()) return std::nullopt;
  return EqualSplit{form->get<std::string>(), speed->get<double>(), ""};
}

Result<EqualSplit> try_equal_split(const EqualSplitRequest& request, SignalInbox& signals,
                                   ProgressLine& line) {
  EqualSplit found;
  const auto plan = equal_split_plan({request.job, request.fleet, request.profile});
  if (!plan) {
    found = not_measured(plan.error());
  } else if (auto tried = measured(request, *plan, signals, line)) {
    found = std::move(*tried);
  } else if (tried.error().code == ErrorCode::kStopped) {
    return tried;
  } else {
    found = not_measured(tried.error());
  }
  if (!found.not_measured.empty() && signals.next())  // which may be why
    return fail(ErrorCode::kStopped, kInterrupted);
  if (!found.not_measured.empty()) line.note("equal split not measured: " + found.not_measured);
  MOTLEY_TRY_VOID(request.run.write(kFile, document_of(found).dump() + "\n"));
  return found;
}

}  // namespace motley
