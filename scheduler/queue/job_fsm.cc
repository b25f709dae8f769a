#include "scheduler/queue/job_fsm.h"

#include <algorithm>
#include <utility>

namespace motley {
namespace {

/// Those that end without an attempt: nothing to stop.
bool waits(JobState state) { return state == JobState::kWaiting || state == JobState::kQueued; }

std::string cause_of(StopWhy why) {
  return why == StopWhy::kTimeLimit ? "its longest duration has passed" : "cancelled";
}

}  // namespace

const char* name_of(JobState state) {
  switch (state) {
    case JobState::kWaiting:
      return "waiting";
    case JobState::kQueued:
      return "queued";
    case JobState::kProfiling:
      return "profiling";
    case JobState::kPlanning:
      return "planning";
    case JobState::kLaunching:
      return "launching";
    case JobState::kRunning:
      return "running";
    case JobState::kStopping:
      return "stopping";
    case JobState::kSucceeded:
      return "succeeded";
    case JobState::kFailed:
      return "failed";
    case JobState::kCancelled:
      return "cancelled";
  }
  return "?";
}

std::vector<JobAction> JobFsm::on(const JobEvent& event, Nanos now) {
  if (is_final(status_.state)) return {};
  return std::visit([&](const auto& what) { return handle(what, now); }, event);
}

bool JobFsm::has_attempt() const {
  return status_.state == JobState::kProfiling || status_.state == JobState::kLaunching ||
         status_.state == JobState::kRunning || status_.state == JobState::kStopping;
}

JobFsm::Actions JobFsm::launch(JobState state) {
  status_.state = state;
  status_.epoch = Epoch(status_.epoch.value() + 1);
  return {LaunchAttempt{status_.epoch}};
}

void JobFsm::find_waiting_state(Nanos now) {
  const bool ready = !status_.held && status_.unfinished == 0 && status_.not_before <= now;
  status_.state = ready ? JobState::kQueued : JobState::kWaiting;
}

JobFsm::Actions JobFsm::end(JobState state, std::string cause) {
  const bool had_devices = !waits(status_.state);
  status_.state = state;
  status_.stop = StopWhy::kNone;
  status_.cause = std::move(cause);
  return had_devices ? Actions{FreeDevices{}} : Actions{};
}

JobFsm::Actions JobFsm::wait_again(Nanos now) {
  status_.stop = StopWhy::kNone;
  find_waiting_state(now);
  Actions actions{FreeDevices{}};
  if (status_.not_before > now) actions.push_back(WakeAt{status_.not_before});
  return actions;
}

/// Whatever it is at. Of several reasons the one that ends the job counts, else the first.
JobFsm::Actions JobFsm::stop(StopWhy why, Nanos now) {
  const bool ends = why == StopWhy::kCancel || why == StopWhy::kTimeLimit;
  if (has_attempt()) {
    const bool asked = status_.state == JobState::kStopping;
    const bool was_to_end = status_.stop == StopWhy::kCancel || status_.stop == StopWhy::kTimeLimit;
    if (!asked || (ends && !was_to_end)) status_.stop = why;
    status_.state = JobState::kStopping;
    return asked ? Actions{} : Actions{StopAttempt{status_.epoch}};
  }
  if (ends)
    return end(why == StopWhy::kCancel ? JobState::kCancelled : JobState::kFailed, cause_of(why));
  if (!waits(status_.state)) return wait_again(now);
  find_waiting_state(now);
  return {};
}

JobFsm::Actions JobFsm::handle(const DependenciesLeft& event, Nanos now) {
  if (!waits(status_.state)) return {};
  status_.unfinished = event.unfinished;
  if (!event.failed.empty()) return end(JobState::kCancelled, event.failed);
  find_waiting_state(now);
  return {};
}

JobFsm::Actions JobFsm::handle(const HoldAsked&, Nanos now) {
  status_.held = true;
  return stop(StopWhy::kHold, now);
}

JobFsm::Actions JobFsm::handle(const ReleaseAsked&, Nanos now) {
  status_.held = false;
  if (waits(status_.state)) find_waiting_state(now);
  return {};
}

JobFsm::Actions JobFsm::handle(const CancelAsked&, Nanos now) {
  return stop(StopWhy::kCancel, now);
}

JobFsm::Actions JobFsm::handle(const RequeueAsked&, Nanos now) {
  status_.not_before = now;
  status_.restarts = status_.in_vain = status_.setbacks = 0;
  return stop(StopWhy::kRequeue, now);
}

JobFsm::Actions JobFsm::handle(const Preempted&, Nanos now) { return stop(StopWhy::kPreempt, now); }

JobFsm::Actions JobFsm::handle(const TimeIsUp&, Nanos now) {
  return stop(StopWhy::kTimeLimit, now);
}

JobFsm::Actions JobFsm::handle(const NodeDrained&, Nanos now) { return stop(StopWhy::kDrain, now); }

JobFsm::Actions JobFsm::handle(const DevicesGiven& event, Nanos) {
  if (status_.state != JobState::kQueued) return {};
  status_.measuring = event.to_measure;
  status_.epoch = std::max(status_.epoch, event.newest_attempt);
  if (event.to_measure) return launch(JobState::kProfiling);
  status_.state = JobState::kPlanning;
  return {MakePlan{}};
}

JobFsm::Actions JobFsm::handle(const PlanEnded& event, Nanos now) {
  if (status_.state != JobState::kPlanning) return {};
  if (!event.fault.empty())
    return event.hopeless ? end(JobState::kFailed, event.fault)
                          : try_again(false, event.fault, now);
  return launch(JobState::kLaunching);
}

JobFsm::Actions JobFsm::handle(const LaunchedAttempt& event, Nanos) {
  if (event.epoch == status_.epoch && status_.state == JobState::kLaunching)
    status_.state = JobState::kRunning;
  return {};
}

JobFsm::Actions JobFsm::handle(const AttemptOver& event, Nanos now) {
  if (event.epoch != status_.epoch || !has_attempt()) return {};
  if (event.progressed) status_.in_vain = status_.setbacks = 0;
  const bool measured = std::exchange(status_.measuring, false);
  const bool done = event.outcome == AttemptOutcome::kDone;
  if (done && !measured) return end(JobState::kSucceeded, "");
  if (status_.stop == StopWhy::kCancel) return end(JobState::kCancelled, cause_of(status_.stop));
  if (status_.stop == StopWhy::kTimeLimit) return end(JobState::kFailed, cause_of(status_.stop));
  // Who was asked to end may well have failed in doing so: it goes on from what it had saved.
  if (status_.stop != StopWhy::kNone || done) return wait_again(now);
  if (event.outcome == AttemptOutcome::kStopped) return stopped_unasked(event.progressed, now);
  if (event.elsewhere) {
    status_.cause = event.cause;
    return wait_again(now);
  }
  if (event.blameless) return set_back(event.cause, now);
  return event.hopeless ? end(JobState::kFailed, event.cause)
                        : try_again(event.progressed, event.cause, now);
}

/// It may do so at once the next time, too: none is begun without a wait. One that has got on is no
/// failure, however often it does that.
JobFsm::Actions JobFsm::stopped_unasked(bool progressed, Nanos now) {
  const std::string cause = "it stopped by itself";
  if (!progressed) return try_again(false, cause, now);
  status_.cause = cause;
  status_.not_before = now + retry_.first_wait;
  return wait_again(now);
}

JobFsm::Actions JobFsm::try_again(bool progressed, const std::string& cause, Nanos now) {
  ++status_.restarts;
  status_.in_vain += progressed ? 0 : 1;
  if (status_.restarts > retry_.most_restarts || status_.in_vain >= retry_.most_in_vain)
    return end(JobState::kFailed, cause);
  return back_off(status_.restarts, cause, now);
}

/// It costs the job none of its restarts, however often it happens: only the waits become longer,
/// until it gets on.
JobFsm::Actions JobFsm::set_back(const std::string& cause, Nanos now) {
  return back_off(++status_.setbacks, cause, now);
}

JobFsm::Actions JobFsm::back_off(int failures, const std::string& cause, Nanos now) {
  status_.cause = cause;
  Nanos wait = retry_.first_wait;
  for (int i = 1; i < failures && wait < retry_.longest_wait; ++i) wait = wait * 2;
  status_.not_before = now + std::min(wait, retry_.longest_wait);
  return wait_again(now);
}

JobFsm::Actions JobFsm::handle(const BackOffIsOver&, Nanos now) {
  if (status_.state == JobState::kWaiting) find_waiting_state(now);
  return {};
}

}  // namespace motley
