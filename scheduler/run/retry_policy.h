#pragma once
// What follows a failed attempt. No clock, no I/O.

#include <optional>
#include <string>

#include "core/ids.h"
#include "core/result.h"
#include "core/spec/job_spec.h"

namespace motley {

struct FailedAttempt {
  Error error;
  std::string device;             ///< to blame; empty: not known
  int64_t step_reached = 0;       ///< the last step done, 0 if none
  bool all_steps_done = false;    ///< only what follows the last step failed
  bool older_checkpoint = false;  ///< there is one before that which the attempt began from
};

struct RetryDecision {
  bool again = false;
  Nanos wait{0};         ///< before the next attempt
  bool go_back = false;  ///< to an older checkpoint: the last one leads nowhere
  std::string exclude;   ///< device to leave out from now on; empty: none
  std::string why_not;   ///< when not again, beside the error itself; empty: it speaks for itself
};

class RetryPolicy {
 public:
  /// `step` is where the first attempt resumes.
  RetryPolicy(const RetrySpec& spec, int64_t step) : spec_(spec), best_step_(step) {}

  RetryDecision after(const FailedAttempt& failed);
  int restarts() const { return restarts_; }

 private:
  RetrySpec spec_;
  int64_t best_step_;
  int restarts_ = 0;
  int without_progress_ = 0;
  std::string last_device_;
};

}  // namespace motley
