#include "scheduler/run/retry_policy.h"

#include <algorithm>

namespace motley {
namespace {

constexpr int kAttemptsWithoutProgress = 3;
constexpr double kLongestWaitSeconds = 60;

/// Errors that another attempt would only repeat.
bool is_final(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
    case ErrorCode::kInvalidSpec:
    case ErrorCode::kNoPlan:
    case ErrorCode::kNotFound:
    case ErrorCode::kUnsupported:
    case ErrorCode::kNotPermitted:
    case ErrorCode::kBrokenInstall:
    case ErrorCode::kCorrupt:
      return true;
    case ErrorCode::kRunFailed:
    case ErrorCode::kDiverged:
    case ErrorCode::kNoDevice:
    case ErrorCode::kDeviceLost:
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kPeerLost:
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
    case ErrorCode::kStopped:
      return false;
  }
  return false;
}

}  // namespace

RetryDecision RetryPolicy::after(const FailedAttempt& failed) {
  RetryDecision decision;
  if (is_final(failed.error.code)) return decision;
  // A full disk, most likely: the steps would be trained again only to end in the same way.
  if (failed.all_steps_done && failed.error.code == ErrorCode::kIo) return decision;
  const bool progressed = failed.step_reached > best_step_;
  best_step_ = std::max(best_step_, failed.step_reached);
  without_progress_ = progressed ? 0 : without_progress_ + 1;
  // With no restart allowed there is nothing to explain.
  if (restarts_ >= spec_.max_restarts) {
    if (spec_.max_restarts > 0)
      decision.why_not = "given up after " + std::to_string(restarts_) + " restarts";
    return decision;
  }
  const bool go_back = without_progress_ == kAttemptsWithoutProgress && failed.older_checkpoint;
  if (without_progress_ >= kAttemptsWithoutProgress && !go_back) {
    decision.why_not =
        "given up after " + std::to_string(without_progress_) + " attempts without progress";
    return decision;
  }
  const bool twice = !failed.device.empty() && failed.device == last_device_;
  last_device_ = failed.device;
  if (twice && spec_.exclude_failed_devices) {
    decision.exclude = failed.device;
    last_device_.clear();
  }
  ++restarts_;
  decision.again = true;
  decision.go_back = go_back;
  if (!progressed)
    decision.wait = nanos_of_seconds(std::min(
        kLongestWaitSeconds, static_cast<double>(1 << std::min(without_progress_ - 1, 6))));
  return decision;
}

}  // namespace motley
