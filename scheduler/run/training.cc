#include "scheduler/run/training.h"

#include <poll.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/attempt_result.h"
#include "core/clock.h"
#include "core/file_system.h"
#include "core/units.h"
#include "planner/questions/fleet_parts.h"
#include "scheduler/report/report_text.h"
#include "scheduler/run/count_memory.h"
#include "scheduler/run/find_plan.h"
#include "scheduler/run/given_plan.h"
#include "scheduler/run/memory_replan.h"

namespace motley {
namespace {

constexpr int64_t kAnyStep = std::numeric_limits<int64_t>::max();

/// Without this device, or without all of its host where that is what is lost.
FleetSpec without(FleetSpec fleet, const std::string& device, bool whole_host) {
  const DeviceSpec* lost = fleet.find(device);
  const std::string host = lost != nullptr ? lost->host : "";
  std::erase_if(fleet.devices, [&](const DeviceSpec& each) {
    return each.id == device || (whole_host && each.host == host);
  });
  return fleet;
}

class Training {
 public:
  Training(const TrainingRequest& request, const Plan& plan, SignalInbox& signals,
           ProgressLine& line)
      : request_(request),
        fleet_(request.fleet),
        profile_(request.profile),
        signals_(signals),
        line_(line),
        policy_(request.job.retry, resumed_step()) {
    result_.plan = plan;
  }

  Result<TrainingResult> run() {
    while (true) {
      MOTLEY_TRY(AttemptRecord record, attempt());
      if (record.eval_loss) result_.eval_loss = record.eval_loss;
      result_.last = std::move(record);
      result_.restarts = policy_.restarts();
      if (result_.last->finished() || result_.last->stopped() || result_.last->followed.killed)
        return std::move(result_);
      if (result_.last->followed.signal != 0) {
        give_up(result_.last->followed.end.error, "it was asked to stop and is not tried again");
        return std::move(result_);
      }
      MOTLEY_TRY(const bool again, restart_after_failure());
      if (!again) return std::move(result_);
    }
  }

 private:
  int64_t resumed_step() const {
    const auto committed = request_.run.committed(request_.job);
    return committed.empty() ? 0 : committed.front().step;
  }

  Result<AttemptRecord> attempt() {
    Attempt attempt;
    MOTLEY_TRY(attempt.epoch, request_.run.next_epoch(request_.job));
    attempt.run_dir = request_.run.path();
    attempt.job = request_.job;
    attempt.fleet = used_by(result_.plan, fleet_);
    attempt.plan = result_.plan;
    attempt.trace = request_.trace;
    attempt.resume_checkpoint = checkpoint_to_resume(request_.run, request_.job, latest_);
    MOTLEY_TRY_VOID(request_.run.write("plan.json", to_json(attempt.plan).dump(1) + "\n"));
    AttemptOptions options;
    options.directory = request_.run.attempt_directory(attempt.epoch);
    options.rsh_agent = request_.rsh_agent;
    options.lock_fd = request_.run.lock_fd();
    options.metrics_path = request_.run.file("metrics.jsonl");
    options.progress_path = request_.run.file("progress.json");
    MOTLEY_TRY(AttemptRecord record, run_training_attempt(attempt, options, signals_, line_));
    keep_result(options.directory, record);
    return record;
  }

  /// For the report, which does without where the disk is full.
  void keep_result(const std::string& attempt_directory, const AttemptRecord& record) {
    const AttemptResult result{record.statistics.ranks(), record.statistics.least_wait_seconds(),
                               record.weights_xxh3};
    const auto kept = write_attempt_result(real_file_system(), attempt_directory, result);
    if (!kept) line_.note("warning: " + kept.error().to_string());
  }

  /// False when it is given up, or a signal came; then result_ says so.
  Result<bool> restart_after_failure() {
    const AttemptEnd& end = result_.last->followed.end;
    // A host that was never there is the user's to mend, not ours to work around.
    const bool at_start = policy_.restarts() == 0 && result_.last->statistics.last_step() == 0;
    if (end.error.code == ErrorCode::kNoDevice && at_start) return fail(end.error);
    if (end.error.code == ErrorCode::kOutOfMemory && end.rank >= 0)
      return go_on_with_less_memory(end);
    const std::optional<int64_t> older = older_checkpoint();
    const int64_t done = result_.last->statistics.last_step();
    const RetryDecision decision =
        policy_.after({.error = end.error,
                       .device = blamed_device(end),
                       .step_reached = done,
                       .all_steps_done = done == request_.job.train.steps,
                       .older_checkpoint = older.has_value()});
    if (!decision.again) return give_up(end.error, decision.why_not);
    latest_ = decision.go_back ? *older : kAnyStep;
    result_.restarts = policy_.restarts();
    line_.note("attempt failed: " + end.error.to_string());
    if (!decision.exclude.empty()) {
      const auto planned = leave_out(decision.exclude, end.error.code == ErrorCode::kNoDevice);
      if (!planned) return give_up(end.error, planned.error().message);
    }
    if (decision.go_back)
      line_.note("going back to the checkpoint of step " + std::to_string(*older));
    if (decision.wait > Nanos(0))
      line_.note("trying again in " + format_seconds(seconds_of(decision.wait)));
    if (wait(decision.wait)) return true;
    result_.last->followed.killed = true;
    return false;
  }

  /// Neither a lost device nor a restart: every time the micro-batch is at most half of what it
  /// was.
  Result<bool> go_on_with_less_memory(const AttemptEnd& end) {
    const PlanRequest request{request_.job, fleet_, profile_};
    auto next = plan_for_less_memory(request, result_.plan, Rank(end.rank), [&](const Plan& plan) {
      return count_memory(plan, request_.job, fleet_);
    });
    if (!next) return give_up(end.error, next.error().message);
    line_.note(out_of_memory_text(next->what));
    result_.plan = std::move(next->plan);
    profile_ = std::move(next->profile);
    result_.out_of_memory.push_back(std::move(next->what));
    MOTLEY_TRY_VOID(request_.run.write("profile.json", to_json(profile_).dump(1) + "\n"));
    return true;
  }

  /// The step of the newest checkpoint before the one that the last attempt began from.
  std::optional<int64_t> older_checkpoint() const {
    const auto committed = request_.run.committed(request_.job);
    if (committed.empty()) return std::nullopt;
    const int64_t began = result_.last->began_after.value_or(committed.front().step);
    std::optional<int64_t> older;
    for (const CheckpointName& name : committed)
      if (name.step < began) older = std::max(older.value_or(0), name.step);
    return older;
  }

  bool give_up(Error error, const std::string& why) {
    if (!why.empty()) error.message += "; " + why;
    result_.failure = std::move(error);
    return false;
  }

  /// The device that may be at fault: not where a rank only met a full disk or the like.
  std::string blamed_device(const AttemptEnd& end) const {
    const ErrorCode code = end.error.code;
    const bool devices_fault = code == ErrorCode::kRunFailed || code == ErrorCode::kDeviceLost ||
                               code == ErrorCode::kNoDevice || code == ErrorCode::kInternal;
    if (end.rank < 0 || !devices_fault) return "";
    return result_.plan.ranks[static_cast<size_t>(end.rank)].device;
  }

  Result<Unit> leave_out(const std::string& device, bool whole_host) {
    const std::string lost = (whole_host ? "the host of device " : "device ") + device;
    const bool given = is_given(result_.plan);
    FleetSpec rest = without(fleet_, device, whole_host);
    PlanRequest again{request_.job, rest, profile_};
    if (!given) again.previous = &result_.plan;
    auto planned = find_plan(again);
    if (!planned && given)
      return fail(planned.error().code,
                  lost +
                      " failed twice running, the given plan needs it, and a search finds no "
                      "other (" +
                      planned.error().message + "); write a plan without " + lost +
                      " and run again");
    if (!planned) return fail(planned.error());
    result_.plan = std::move(*planned);
    fleet_ = std::move(rest);
    line_.note(
        lost + " failed twice running and is left out" +
        (given ? "; the given plan needs it and no longer applies: the search's replaces it" : ""));
    return Unit{};
  }

  /// False when a signal came first.
  bool wait(Nanos duration) {
    const Nanos until = steady_clock().now() + duration;
    while (true) {
      if (const auto signal = signals_.next()) {
        result_.last->followed.signal = *signal;
        return false;
      }
      const int timeout = poll_milliseconds(until);
      if (timeout == 0) return true;
      pollfd watched{signals_.fd(), POLLIN, 0};
      ::poll(&watched, 1, timeout);
    }
  }

  const TrainingRequest& request_;
  FleetSpec fleet_;
  Profile profile_;  ///< less what turned out not to fit
  SignalInbox& signals_;
  ProgressLine& line_;
  RetryPolicy policy_;
  int64_t latest_ = kAnyStep;  ///< the next attempt begins at a checkpoint of at most this step
  TrainingResult result_;
};

}  // namespace

std::string checkpoint_to_resume(const RunDirectory& run, const JobSpec& job, int64_t latest) {
  const std::vector<CheckpointName> committed = run.committed(job);
  const std::vector<MetricsRow> rows = read_metrics(run.file("metrics.jsonl"));
  const int64_t recorded = std::min(latest, rows.empty() ? 0 : rows.back().step);
  const auto found =
      std::find_if(committed.begin(), committed.end(),
                   [&](const CheckpointName& name) { return name.step <= recorded; });
  // The newest goes by that name, so that the worker may fall back when it cannot be read.
  if (found == committed.end() || found == committed.begin()) return "newest";
  return checkpoint_directory_name(found->step, found->epoch);
}

Result<TrainingResult> train(const TrainingRequest& request, const Plan& first_plan,
                             SignalInbox& signals, ProgressLine& line) {
  return Training(request, first_plan, signals, line).run();
}

}  // namespace motley
