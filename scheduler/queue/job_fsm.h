#pragma once
// What becomes of a job, without any I/O: events and the time go in, actions come out. The service
// persists the new state before it performs them; the simulation of a trace performs them in
// virtual time.
//
//   waiting <-> queued -> profiling(e) -> queued -> planning -> launching(e) -> running(e)
//      ^           ^                                                               |
//      |           +---- preempted, requeued, device lost --------- stopping(e) <--+
//      +---- held, a dependency, back-off --------------------------|
//                                              succeeded, failed, cancelled: final
//
// Every attempt has an epoch; what is said of an older one changes nothing.

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/ids.h"

namespace motley {

enum class JobState : uint8_t {
  kWaiting,    ///< held, or for other jobs, or for the end of a back-off
  kQueued,     ///< could start
  kProfiling,  ///< measured on a device of each type
  kPlanning,
  kLaunching,
  kRunning,
  kStopping,  ///< asked to save and end
  kSucceeded,
  kFailed,
  kCancelled,
};
const char* name_of(JobState state);
constexpr bool is_final(JobState state) { return state >= JobState::kSucceeded; }

/// Why an attempt is asked to end.
enum class StopWhy : uint8_t { kNone, kCancel, kHold, kPreempt, kRequeue, kTimeLimit, kDrain };

/// How often, and how soon, a job that failed is tried again.
struct RetryRule {
  int most_restarts = 5;  ///< in all
  int most_in_vain = 3;   ///< one after the other without a step trained
  Nanos first_wait{1'000'000'000};
  Nanos longest_wait{60'000'000'000};  ///< each wait is twice the one before, up to this
};

// Events.
struct DependenciesLeft {
  int unfinished = 0;
  std::string failed = {};  ///< which of them will never succeed, in words; empty: all may
};
struct HoldAsked {};
struct ReleaseAsked {};
struct CancelAsked {};
struct RequeueAsked {};
struct DevicesGiven {       ///< by the policy
  bool to_measure = false;  ///< how fast it is on each: the attempt trains nothing
  /// That the job has ever had, whether or not anybody remembers it: the next one comes after it.
  Epoch newest_attempt{0};
};
struct Preempted {};
struct PlanEnded {
  std::string fault;      ///< empty: the plan is there
  bool hopeless = false;  ///< nothing fits these devices, nor would it another time
};
struct LaunchedAttempt {
  Epoch epoch;
};
enum class AttemptOutcome : uint8_t { kDone, kStopped, kFailed };
struct AttemptOver {
  Epoch epoch;
  AttemptOutcome outcome = AttemptOutcome::kFailed;
  bool progressed = false;  ///< it committed a checkpoint or ended
  bool hopeless = false;    ///< the job's own fault, and the same another time
  std::string cause;        ///< of a failure
  /// Of a failure: no doing of the job or its devices. A node was lost, the disk is full.
  bool blameless = false;
  /// Of a failure: it is the devices that will not do, others may.
  bool elsewhere = false;
  int64_t saved_step = 0;  ///< of its newest checkpoint; 0: none, or not known
  /// Of one that measured: samples a second by device id; 0: it cannot train the model.
  std::map<std::string, double> speeds = {};
  /// Since when it has been over where nobody was there to see it.
  Nanos ended_ago{0};
  /// Something of it still runs, although killed: nobody may have its devices yet.
  bool unclean = false;
};
struct TimeIsUp {};       ///< its longest duration has passed
struct NodeDrained {};    ///< a node it runs on is to be empty
struct BackOffIsOver {};  ///< at or after JobStatus::not_before
using JobEvent = std::variant<DependenciesLeft, HoldAsked, ReleaseAsked, CancelAsked, RequeueAsked,
                              DevicesGiven, Preempted, PlanEnded, LaunchedAttempt, AttemptOver,
                              TimeIsUp, NodeDrained, BackOffIsOver>;

// Actions.
struct MakePlan {};
struct LaunchAttempt {
  Epoch epoch;
};
struct StopAttempt {
  Epoch epoch;
};
struct FreeDevices {};  ///< whatever the job was given
struct WakeAt {         ///< say BackOffIsOver then
  Nanos when{0};
};
using JobAction = std::variant<MakePlan, LaunchAttempt, StopAttempt, FreeDevices, WakeAt>;

/// All that is kept of where a job stands.
struct JobStatus {
  JobState state = JobState::kQueued;
  Epoch epoch{0};  ///< of the newest attempt; 0: none yet
  StopWhy stop = StopWhy::kNone;
  bool measuring = false;  ///< is what the attempt under way does
  bool held = false;
  int unfinished = 0;  ///< jobs that it waits for
  int restarts = 0;
  int in_vain = 0;
  int setbacks = 0;  ///< failures without blame, one after the other without a step trained
  Nanos not_before{0};
  std::string cause;  ///< of the end, or of the last failure

  bool operator==(const JobStatus&) const = default;
};

/// A job where it stands; copies are cheap.
class JobFsm {
 public:
  explicit JobFsm(RetryRule retry = {}, JobStatus status = {})
      : retry_(retry), status_(std::move(status)) {}

  const JobStatus& status() const { return status_; }
  /// An event that means nothing where the job stands changes nothing.
  std::vector<JobAction> on(const JobEvent& event, Nanos now);

 private:
  using Actions = std::vector<JobAction>;
  Actions handle(const DependenciesLeft& event, Nanos now);
  Actions handle(const HoldAsked& event, Nanos now);
  Actions handle(const ReleaseAsked& event, Nanos now);
  Actions handle(const CancelAsked& event, Nanos now);
  Actions handle(const RequeueAsked& event, Nanos now);
  Actions handle(const DevicesGiven& event, Nanos now);
  Actions handle(const Preempted& event, Nanos now);
  Actions handle(const PlanEnded& event, Nanos now);
  Actions handle(const LaunchedAttempt& event, Nanos now);
  Actions handle(const AttemptOver& event, Nanos now);
  Actions handle(const TimeIsUp& event, Nanos now);
  Actions handle(const NodeDrained& event, Nanos now);
  Actions handle(const BackOffIsOver& event, Nanos now);

  bool has_attempt() const;
  Actions launch(JobState state);
  Actions end(JobState state, std::string cause);
  Actions stop(StopWhy why, Nanos now);
  /// Back to where a job waits for its turn.
  Actions wait_again(Nanos now);
  Actions stopped_unasked(bool progressed, Nanos now);
  Actions try_again(bool progressed, const std::string& cause, Nanos now);
  Actions set_back(const std::string& cause, Nanos now);
  Actions back_off(int failures, const std::string& cause, Nanos now);
  void find_waiting_state(Nanos now);

  RetryRule retry_;
  JobStatus status_;
};

}  // namespace motley
