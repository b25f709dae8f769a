#pragma once
// The job service without its surroundings: what people ask, what attempts come to and the passing
// of time go in; what is to be kept goes to the store, and only when it is on disk the actions go
// to the launcher ("persist, then act"). Clock, store and launcher are seams: the same code runs
// behind HTTP and in a simulation. One thread; none of its calls waits.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/result.h"
#include "core/spec/reader.h"
#include "scheduler/policies/policy.h"
#include "scheduler/queue/job_fsm.h"
#include "scheduler/service/attempt_launcher.h"
#include "scheduler/service/device_pools.h"
#include "scheduler/service/node.h"
#include "scheduler/store/group_commit.h"
#include "scheduler/store/job_store.h"
#include "scheduler/store/speed_store.h"

namespace motley {

/// Where changes go: in the order they are handed in, each on disk or failed before `done` is
/// called, on the coordinator's thread and never from within write().
class ChangeWriter {
 public:
  virtual ~ChangeWriter() = default;
  virtual void write(GroupCommit::Change change, GroupCommit::Done done) = 0;
};

/// What somebody wants of a job that is there.
enum class JobRequest : uint8_t { kCancel, kHold, kRelease, kRequeue };

/// As it was submitted or last updated; whoever has it keeps it.
using SharedSpec = std::shared_ptr<const JobSpec>;

struct Submission {
  std::vector<JobSpec> jobs;  ///< one, or those of an array
  std::string owner;
  std::string key;      ///< of idempotence; empty: none
  bool held = false;    ///< until it is released
  std::string by = {};  ///< who asks for what goes on from another job
};

/// Why a job is where it is.
struct WhyJob {
  std::vector<std::string> reasons;  ///< a line each, what matters most first
  std::string remedy;                ///< the nearest change that would start it; empty: none known
  int position = 0;                  ///< in the queue, from 1; 0: it is not in it
  std::optional<double> starts_in =
      {};  ///< seconds, about, if nothing else comes; nothing: not known
};

class Coordinator {
 public:
  /// All outlive the coordinator. `kept` is read on its thread and sees what is on disk.
  struct Surroundings {
    const Clock& clock;
    const Database& kept;
    ChangeWriter& store;
    AttemptLauncher& launcher;
    Policy& policy;
    std::function<int64_t()> wall_time;  ///< nanoseconds since 1970, for people only
  };
  struct Rules {
    Nanos stop_grace{120'000'000'000};  ///< to save and end in; then it is killed
    Nanos stop_margin{15'000'000'000};  ///< beyond what a job asks for itself
    Nanos kill_again{10'000'000'000};   ///< what does not go although killed
    Nanos write_again{1'000'000'000};   ///< after a write that failed
    /// For others of its priority a job is not stopped before it has run so long: fair shares would
    /// else change hands with every decision.
    Nanos least_run{60'000'000'000};
    Nanos node_silence{5'000'000'000};           ///< then a node is lost
    Nanos longest_measuring{600'000'000'000};    ///< of one attempt; then it is killed
    Bytes log_limit{0};                          ///< of what an attempt prints; 0: none
    std::map<std::string, double> weights = {};  ///< of owners' fair shares; others: 1
  };
  struct Counters {
    std::map<JobState, int64_t> jobs;  ///< in each state
    int64_t submissions = 0;           ///< acknowledged since the start
    int64_t decisions = 0;
    Nanos deciding{0};
  };
  using Submitted = std::function<void(Result<int64_t>)>;
  using Answered = std::function<void(Result<Unit>)>;

  Coordinator(FleetSpec fleet, Surroundings surroundings)
      : Coordinator(std::move(fleet), std::move(surroundings), Rules()) {}
  Coordinator(FleetSpec fleet, Surroundings surroundings, Rules rules);

  /// Goes on with all that is kept and not finished; attempts are found again, or begun where a
  /// coordinator was killed before it had begun them.
  Result<Unit> recover();

  /// The number of the job, or of an array's first one, which those of the others follow, is
  /// answered when all are on disk; or none is. kInvalidSpec, kNoDevice: all devices
  /// that are known, there or not, would not do, and the key is new; while none is known every job
  /// waits for the first. kUsage: the key belongs to another job.
  void submit(Submission submission, Submitted done);
  /// Answered when it is on disk; kNotFound, kNotPermitted for a job that has ended. `by`: who
  /// asks, which its event says.
  void ask(int64_t job, JobRequest request, Answered done, const std::string& by = {});
  /// Other values for a job, from now on; answered as ask() is. Also kInvalidSpec and kNoDevice, as
  /// of a submission; kNotPermitted for what concerns the start of an attempt that is under way.
  void update(int64_t job, const std::vector<Override>& changes, Answered done,
              const std::string& by = {});
  void attempt_over(int64_t job, const AttemptOver& over);
  /// Of a leftover, or one whose end was unclean, nothing runs any more.
  void attempt_gone(AttemptId id);

  // Nodes: answered when it is on disk. kNotFound where there is none of that name.

  /// A machine's agent offers its devices. kNotPermitted where another agent has the name, or
  /// another node a device; kInvalidSpec where they are paced by another clock.
  void join(NodeJoin join, Answered done);
  /// Whether it would be refused.
  Result<Unit> may_join(const NodeJoin& join) const;
  /// The attempts whose processes may be there. kNotFound: its agent is to join again;
  /// kNotPermitted: the node is another agent's; kNoDevice: it may be, try again.
  Result<std::vector<AttemptId>> hear(const NodeReport& report);
  void leave(const std::string& name, const std::string& session, Answered done);
  void drain(const std::string& name, const DrainRequest& request, Answered done);
  void undrain(const std::string& name, Answered done, const std::string& by = {});
  /// One that is lost is known no more; its events are. kNotPermitted while it is not lost, or
  /// something of an attempt has not ended there.
  void forget_node(const std::string& name, Answered done, const std::string& by = {});
  const std::map<std::string, Node>& nodes() const { return nodes_; }
  /// Whether processes of the attempt are to be on that node now.
  bool may_run(AttemptId attempt, const std::string& node) const;
  /// This process stood still: silence in that time is nobody's fault.
  void was_away();

  /// When on_time() has something to do at the earliest; nothing: never.
  std::optional<Nanos> next_wake() const;
  void on_time();
  /// What could not be written: until something can be again nothing is done, and whatever is asked
  /// is refused with this error. Attempts train on.
  const std::optional<Error>& broken() const { return broken_; }

  const DevicePools& devices() const { return devices_; }
  const Clock& clock() const { return around_.clock; }
  const Counters& counters() const { return counters_; }
  /// Of a job that has not ended; nothing for any other.
  std::optional<WhyJob> why(int64_t job) const;
  int running() const;  ///< attempts under way
  /// A job that has not ended and begins from what that one has saved.
  std::optional<int64_t> heir_of(int64_t job) const;
  /// A job that stood there is kept no longer.
  void count_removed(JobState state) { --counters_.jobs[state]; }

 private:
  struct Job {
    int64_t id = 0;
    std::string owner;
    int priority = 50;
    bool preemptible = false;
    SharedSpec spec;
    std::string workload;  ///< by which its speeds are known; empty: a program, never measured
    Demand demand;
    Unfit unfit;                  ///< as its attempts have shown
    bool measured_apart = false;  ///< on one pool after the other: all at once has failed
    int64_t array = 0;            ///< the number of its array's first job; 0: it is of none
    std::vector<int64_t> after;
    Nanos longest{0};
    JobFsm fsm;
    std::vector<std::string> devices;  ///< their ids, while it has an attempt
    std::string node_fault;            ///< by which its attempt is over, whatever it says itself
    Nanos begun{0};                    ///< the attempt under way
    Nanos served{0};                   ///< in earlier attempts
    int64_t saved_step = 0;            ///< of its newest checkpoint, as far as is known
    Nanos stop_by{0};
  };
  struct Due {
    Nanos when{0};
    int64_t job = 0;
    bool operator<(const Due& other) const { return when > other.when; }  // the soonest on top
  };

  /// A write has failed: what is in memory may not be what is kept.
  void break_off(const Error& error);
  void try_to_write_again();
  void begin_again();
  Result<Unit> recover(const StoredJob& stored, const SharedSpec& spec);
  void find_attempt(Job& job, const std::vector<StoredAttempt>& attempts);
  Job make_job(int64_t id, SharedSpec spec, const std::string& owner, JobFsm fsm);
  /// What the job goes by.
  void adopt(SharedSpec spec, Job& job);
  Result<Unit> check_submission(const Submission& submission, bool repeated) const;
  Result<Job> first_of(const JobSpec& spec, const Submission& submission);
  Result<Unit> check_update(const Job& job, const JobSpec& spec,
                            const std::vector<Override>& changes) const;
  Result<Unit> can_follow(int64_t before) const;
  bool comes_after(const std::vector<int64_t>& after, int64_t job) const;
  /// After the fleet or what the job has of it has changed.
  void find_demand(Job& job) const;
  void find_demands();
  Result<DependenciesLeft> dependencies(const std::vector<int64_t>& after) const;
  /// kNotFound where there is no such job.
  Result<JobState> state_of(int64_t id) const;
  /// kNotFound, kNotPermitted for one that has ended.
  Result<Job*> find_unended(int64_t id);
  void note_dependent(const Job& job);
  void forget_dependent(int64_t before, int64_t job);
  /// The job is on disk.
  void enter(Job job);
  void accept(Job job);
  void forget(int64_t id);
  void apply(Job& job, const JobEvent& event, Answered done = {}, const std::string& by = {});
  /// What is to be kept of it.
  GroupCommit::Change change_of(const Job& job, const JobStatus& before, const JobEvent& event,
                                const std::string& by) const;
  /// In memory, at once: whatever follows from it is written later. `measured`: what it did with
  /// its devices so far.
  void take_effect(Job& job, const std::vector<JobAction>& actions, bool measured);
  /// The change is on disk.
  void act(int64_t id, const std::vector<JobAction>& actions);
  void perform(Job& job, const LaunchAttempt& action);
  void perform(Job& job, const StopAttempt& action);
  void wake_in_attempt(const Job& job);
  void find_leftovers();
  void set_aside(AttemptId id, std::vector<std::string> devices, Nanos kill_at,
                 const std::string& why);
  bool has_leftover(int64_t job) const;
  void look_at_leftovers();
  void why_devices_are_aside(WhyJob* why) const;
  Result<AttemptOrder> order_of(const Job& job) const;
  void tell_dependents(int64_t id);
  void look_at(Job& job);
  void wake(Nanos when, int64_t job) { due_.push({when, job}); }
  Nanos now() const { return around_.clock.now(); }

  Result<Unit> recover_nodes();
  void begin_with_own();
  Node* find_node(const std::string& name);
  Result<Unit> check_pace(const NodeJoin& join) const;
  void keep(const Node& node, const std::string& text, Answered done);
  void write_change(GroupCommit::Change change, Answered done);
  void keep_deadline(Node& node);
  Result<Unit> may_forget(const Node& node) const;
  void lose(Node& node, const std::string& cause, Answered done);
  void give_up_attempts_on(const std::string& name, const std::string& cause);
  std::vector<AttemptId> attempts_on(const std::string& node) const;
  void set_devices(Job& job, std::vector<std::string> devices);
  std::optional<Nanos> next_node_due() const;
  void look_at_nodes();

  QueueView view() const { return view_on(devices_); }
  /// As it would be with these, which are ours but for who may be given them.
  QueueView view_on(const DevicePools& devices) const;
  Job job_on(const DevicePools& devices, Job job) const;
  JobView view_of(const Job& job, const PoolCounts& free) const;
  void see_speeds(const Job& job, JobView* seen) const;
  void see_measuring(const std::vector<size_t>& pools, JobView* seen) const;
  bool may_be_stopped(const Job& job) const;

  // How fast jobs are on what.
  using Speeds = std::map<std::string, double>;  ///< samples a second of one device, by its traits
  void know_speeds(const std::string& workload);
  void learn(const Job& job, const AttemptOver& over);
  std::vector<StoredSpeed> speeds_in(const Job& job, const AttemptOver& over) const;
  /// Of one device of the pool; 0: it cannot train the job. Nothing: not measured.
  std::optional<double> speed_of(const Job& job, size_t pool) const;
  /// The pools on which it is to be measured before it is promised anything.
  std::vector<size_t> unmeasured(const Job& job, const PoolCounts& free) const;
  std::set<std::string> measured_now() const;
  static bool admits(const Job& job, size_t pool);
  Unfit unfit_for(const Job& job) const;
  void forget_unfit(Job& job) const;
  /// Whether a failed attempt shows only that the job needs other devices, and there are such.
  void look_elsewhere(Job& job, AttemptOver* over);
  double worth_seconds(const Job& job) const;
  double had_by(const std::string& owner) const;
  void add_usage_of(const Job& job);
  Result<Unit> recover_usage();
  /// What its end says of the devices that it had.
  void judge_devices(const Job& job, const AttemptOver& over);
  bool may_be_its_device(const Job& job, const AttemptOver& over) const;
  void decide();
  void carry_out(const QueueView& view, const Schedule& schedule);
  void start(const QueueView& view, std::vector<Placement> placements);
  void why_it_waits(const Job& job, WhyJob* why) const;
  void why_not_before_others(const Job& job, WhyJob* why) const;
  void why_nodes_are_missing(WhyJob* why) const;
  /// What could be otherwise.
  struct Change {
    std::optional<int> priority = {};  ///< the job's own
    std::set<int64_t> ended = {};      ///< jobs that have devices now
    std::string opened = {};           ///< a node that gives nothing now
  };
  class Remedies;
  bool would_start(int64_t job, const Change& change) const;
  std::string remedy_for(const Job& job) const;
  int position_of(const Job& job) const;
  bool lacks_devices(const std::vector<Alternative>& any_of) const;
  void why_it_lacks(const std::vector<Alternative>& any_of, WhyJob* why) const;
  /// Those of arrays of which as many have devices as may at one time.
  std::set<int64_t> held_back() const;

  /// An attempt that is over, or that nobody knows of, while something of it still runs.
  struct Aside {
    std::vector<std::string> devices;  ///< which nobody gets until it is gone
    Nanos kill_at{0};                  ///< from then on, again and again
  };

  const FleetSpec own_;  ///< devices that are no agent's
  DevicePools devices_;
  std::map<std::string, Node> nodes_;
  const Surroundings around_;
  const Rules rules_;
  std::map<int64_t, Job> jobs_;  ///< not ended, or the end is not on disk yet
  std::multimap<int64_t, int64_t> dependents_;
  std::priority_queue<Due> due_;
  std::map<AttemptId, Aside> aside_;
  std::map<std::string, std::set<int64_t>> on_node_;  ///< jobs that have devices, by host
  /// worth_seconds() by owner, of attempts that are over.
  struct Usage {
    double worth = 0;
    Nanos at{0};
  };
  std::map<std::string, Usage> had_;
  std::map<std::string, Speeds> speeds_;  ///< by workload, of those of any job so far
  bool undecided_ = false;
  std::optional<int64_t> reserved_for_;  ///< the job that the others must not keep waiting
  Counters counters_;
  std::optional<Error> broken_;
  std::optional<Nanos> write_again_;  ///< when that is tried, while it is broken
};

/// Jobs of equal ones train equally fast on every device; empty: of a program, which tells nothing.
std::string workload_of(const JobSpec& job);

}  // namespace motley
