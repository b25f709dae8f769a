#include "scheduler/simulate/trace_simulation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check.h"
#include "core/spec/fleet_spec.h"
#include "scheduler/queue/job_fsm.h"

namespace motley {
namespace {

/// What is left of a job's work, in seconds, when it counts as done: below the rounding of sums.
constexpr double kDoneSeconds = 1e-6;

JobView view_of(const TraceJob& job, size_t number, const std::vector<Pool>& pools) {
  JobView view;
  view.id = static_cast<int64_t>(number);
  view.owner = job.owner;
  view.priority = job.priority;
  view.weight = job.weight;
  view.submitted = job.arrival_seconds;
  view.work_left = job.work;
  view.preemptible = job.preemptible;
  view.switch_seconds = job.switch_seconds;
  view.speeds = SpeedTable(pools.size());
  Alternative alternative{job.least, job.most, PoolCounts(pools.size(), 0), job.mix};
  for (size_t pool = 0; pool < pools.size(); ++pool) {
    const auto speeds = std::find_if(job.speeds.begin(), job.speeds.end(), [&](const auto& entry) {
      return type_matches(pools[pool].type, entry.first);
    });
    if (speeds == job.speeds.end()) continue;
    for (const auto& [devices, rate] : speeds->second) view.speeds.add(pool, devices, rate);
    alternative.limit[pool] = std::min(pools[pool].devices, job.most_of_each);
  }
  view.any_of = {std::move(alternative)};
  return view;
}

/// On the fastest devices there are for it; kUnknownSeconds where there are too few.
double seconds_alone(const JobView& job) {
  double least = kUnknownSeconds;
  const Alternative& alternative = job.any_of[0];
  for (size_t pool = 0; pool < alternative.limit.size(); ++pool) {
    const int devices = std::min(alternative.limit[pool], alternative.most);
    if (devices < alternative.least) continue;
    const double rate = job.speeds.rate(pool, devices);
    if (rate > 0) least = std::min(least, job.work_left / rate);
  }
  if (least < kUnknownSeconds || !alternative.mix) return least;
  if (sum_of(alternative.limit) < alternative.least) return least;
  return job.work_left / job.speeds.rate(alternative.limit);
}

class TraceSimulation {
 public:
  TraceSimulation(const std::vector<TraceJob>& trace, const std::vector<Pool>& pools,
                  Policy& policy, const SimulationRules& rules, const Clock& clock)
      : trace_(trace), policy_(policy), rules_(rules), clock_(clock) {
    view_.pools = pools;
  }

  Result<TraceOutcome> run() {
    outcome_.jobs.resize(trace_.size());
    for (size_t i = 0; i < trace_.size(); ++i) {
      const JobView job = view_of(trace_[i], i, view_.pools);
      outcome_.jobs[i] = {trace_[i].arrival_seconds, -1, 0, seconds_alone(job), 0};
      if (outcome_.jobs[i].alone == kUnknownSeconds)
        return fail(ErrorCode::kNoPlan, trace_[i].name +
                                            " asks for more devices of the types it knows "
                                            "than there are");
    }
    view_.now = trace_.front().arrival_seconds;
    while (arrived_ < trace_.size() || !live_.empty()) {
      arrive();
      decide();
      advance(next_event());
      finish();
    }
    sum_up();
    return std::move(outcome_);
  }

 private:
  /// Of a job that has come and is not done, as view_.jobs has it.
  struct Live {
    JobFsm fsm;
    double idle_until = 0;  ///< while it is stopped and started
    double rate = 0;
  };

  static Nanos nanos(double seconds) { return nanos_of_seconds(seconds); }
  SimulatedJob& told(size_t place) {
    return outcome_.jobs[static_cast<size_t>(view_.jobs[place].id)];
  }

  void arrive() {
    for (; arrived_ < trace_.size() && trace_[arrived_].arrival_seconds <= view_.now; ++arrived_) {
      view_.jobs.push_back(view_of(trace_[arrived_], arrived_, view_.pools));
      live_.emplace_back();
      waiting_ = true;
    }
  }

  void decide() {
    const Nanos before = clock_.now();
    const Schedule schedule = motley::schedule(policy_, view_);
    const double took = seconds_of(clock_.now() - before);
    ++outcome_.decisions;
    outcome_.decision_seconds += took;
    outcome_.slowest_decision_seconds = std::max(outcome_.slowest_decision_seconds, took);
    waiting_ = schedule.run.size() < view_.jobs.size();
    std::vector<const PoolCounts*> wanted(view_.jobs.size(), nullptr);
    for (const Placement& placement : schedule.run) wanted[placement.job] = &placement.devices;
    for (size_t i = 0; i < view_.jobs.size(); ++i)
      if (view_.jobs[i].runs() && (wanted[i] == nullptr || *wanted[i] != view_.jobs[i].held))
        stop(i);
    for (size_t i = 0; i < view_.jobs.size(); ++i)
      if (wanted[i] != nullptr && !view_.jobs[i].runs()) start(i, *wanted[i]);
  }

  void stop(size_t place) {
    Live& live = live_[place];
    perform(place, live.fsm.on(Preempted{}, nanos(view_.now)));
    live.fsm.on(AttemptOver{live.fsm.status().epoch, AttemptOutcome::kStopped, true, false, ""},
                nanos(view_.now));
    ++told(place).stops;
    view_.jobs[place].held.clear();
  }

  void start(size_t place, const PoolCounts& devices) {
    JobView& job = view_.jobs[place];
    const bool again = told(place).started >= 0;
    if (!again) told(place).started = view_.now;
    job.held = devices;
    live_[place].rate = job.speeds.rate(devices);
    live_[place].idle_until = view_.now + (again ? job.switch_seconds : 0);
    perform(place, live_[place].fsm.on(DevicesGiven{}, nanos(view_.now)));
    MOTLEY_CHECK(live_[place].fsm.status().state == JobState::kRunning,
                 "a start must lead to running");
  }

  /// What takes no time here.
  void perform(size_t place, const std::vector<JobAction>& actions) {
    JobFsm& fsm = live_[place].fsm;
    for (const JobAction& action : actions) {
      if (std::holds_alternative<MakePlan>(action))
        perform(place, fsm.on(PlanEnded{}, nanos(view_.now)));
      else if (const auto* launch = std::get_if<LaunchAttempt>(&action))
        perform(place, fsm.on(LaunchedAttempt{launch->epoch}, nanos(view_.now)));
    }
  }

  double end_of(size_t place) const {
    return std::max(view_.now, live_[place].idle_until) +
           view_.jobs[place].work_left / live_[place].rate;
  }

  double next_event() const {
    double next = arrived_ < trace_.size() ? trace_[arrived_].arrival_seconds : kUnknownSeconds;
    for (size_t i = 0; i < view_.jobs.size(); ++i)
      if (view_.jobs[i].runs()) next = std::min(next, end_of(i));
    if (policy_.stops_equals() && waiting_) next = std::min(next, view_.now + rules_.round_seconds);
    MOTLEY_CHECK(next < kUnknownSeconds, "jobs that fit must run some time");
    return next;
  }

  void advance(double to) {
    for (size_t i = 0; i < view_.jobs.size(); ++i) {
      JobView& job = view_.jobs[i];
      if (!job.runs()) continue;
      const int devices = sum_of(job.held);
      const double trained = std::max(0.0, to - std::max(view_.now, live_[i].idle_until));
      job.work_left -= trained * live_[i].rate;
      job.served += trained * devices * job.worth_of(live_[i].rate, devices);
      outcome_.busy_device_seconds += (to - view_.now) * devices;
    }
    view_.now = to;
  }

  void finish() {
    for (size_t i = 0; i < view_.jobs.size(); ++i) {
      if (!view_.jobs[i].runs() || view_.jobs[i].work_left > kDoneSeconds * live_[i].rate) continue;
      JobFsm& fsm = live_[i].fsm;
      fsm.on(AttemptOver{fsm.status().epoch, AttemptOutcome::kDone, true, false, ""},
             nanos(view_.now));
      told(i).finished = view_.now;
    }
    size_t kept = 0;
    for (size_t i = 0; i < view_.jobs.size(); ++i) {
      if (is_final(live_[i].fsm.status().state)) continue;
      if (kept != i) {
        view_.jobs[kept] = std::move(view_.jobs[i]);
        live_[kept] = std::move(live_[i]);
      }
      ++kept;
    }
    view_.jobs.resize(kept);
    live_.resize(kept);
  }

  void sum_up() {
    int devices = 0;
    for (const Pool& pool : view_.pools) devices += pool.devices;
    outcome_.makespan = view_.now - trace_.front().arrival_seconds;
    outcome_.device_seconds = outcome_.makespan * devices;
  }

  const std::vector<TraceJob>& trace_;
  Policy& policy_;
  const SimulationRules rules_;
  const Clock& clock_;
  QueueView view_;
  std::vector<Live> live_;  ///< by place in view_.jobs
  size_t arrived_ = 0;
  bool waiting_ = false;  ///< jobs without devices
  TraceOutcome outcome_;
};

}  // namespace

double TraceOutcome::mean_completion() const {
  double sum = 0;
  for (const SimulatedJob& job : jobs) sum += job.completion();
  return sum / static_cast<double>(jobs.size());
}

double TraceOutcome::completion_quantile(double share) const {
  std::vector<double> times;
  for (const SimulatedJob& job : jobs) times.push_back(job.completion());
  std::sort(times.begin(), times.end());
  const double place = std::ceil(share * static_cast<double>(times.size())) - 1;
  return times[static_cast<size_t>(std::max(0.0, place))];
}

double TraceOutcome::fairness() const {
  double sum = 0, squares = 0;
  for (const SimulatedJob& job : jobs) {
    const double slowdown = job.completion() / job.alone;
    sum += slowdown;
    squares += slowdown * slowdown;
  }
  return sum * sum / (static_cast<double>(jobs.size()) * squares);
}

int TraceOutcome::stops() const {
  int stops = 0;
  for (const SimulatedJob& job : jobs) stops += job.stops;
  return stops;
}

Result<TraceOutcome> simulate_trace(const std::vector<TraceJob>& trace,
                                    const std::vector<Pool>& pools, Policy& policy,
                                    const SimulationRules& rules, const Clock& clock) {
  return TraceSimulation(trace, pools, policy, rules, clock).run();
}

}  // namespace motley
