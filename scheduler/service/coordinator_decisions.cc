// Who is given what: the view that policies see, and what their schedule means for the jobs.

#include <algorithm>
#include <climits>
#include <cstdint>
#include <set>

#include "core/units.h"
#include "scheduler/policies/forecast.h"
#include "scheduler/service/coordinator.h"
#include "scheduler/service/event_text.h"

namespace motley {
namespace {

std::string counted(int count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

JobView Coordinator::view_of(const Job& job, const PoolCounts& free) const {
  JobView seen;
  seen.id = job.id;
  seen.owner = job.owner;
  seen.priority = job.priority;
  seen.submitted = static_cast<double>(job.id);  // numbers rise with submission
  seen.any_of = job.demand.any_of;
  seen.preemptible = may_be_stopped(job);
  seen.just_started = now() - job.begun < rules_.least_run;
  seen.moves = false;  // it is stopped for another job, not for other devices
  if (!job.devices.empty()) seen.held = devices_.held_by(job.id);
  see_speeds(job, &seen);
  const JobStatus& status = job.fsm.status();
  std::vector<size_t> pools;
  if (status.state == JobState::kQueued) pools = unmeasured(job, free);
  for (size_t pool = 0; status.measuring && pool < seen.held.size(); ++pool)
    if (seen.held[pool] > 0) pools.push_back(pool);
  if (!pools.empty()) see_measuring(pools, &seen);
  return seen;
}

bool Coordinator::may_be_stopped(const Job& job) const {
  // Nobody would get what it has of a node that is to be empty.
  return job.preemptible && job.fsm.status().state == JobState::kRunning &&
         sum_of(devices_.closed_held_by(job.id)) == 0;
}

QueueView Coordinator::view() const {
  QueueView view;
  view.now = seconds_of(now());
  view.pools = devices_.pools();
  const PoolCounts free = devices_.free_counts();
  std::map<std::string, double> had;
  for (const auto& [owner, usage] : had_) had[owner] = had_by(owner);
  const std::set<std::string> measured = measured_now();
  const std::set<int64_t> held = held_back();
  for (const auto& [id, job] : jobs_) {
    const bool queued = job.fsm.status().state == JobState::kQueued;
    had[job.owner] += worth_seconds(job);
    // What one that stops has is as good as free, and not to be taken by whoever comes first.
    const bool stops = job.fsm.status().state == JobState::kStopping;
    const PoolCounts gone = stops ? devices_.closed_held_by(id) : PoolCounts();
    for (size_t pool = 0; pool < gone.size(); ++pool) view.pools[pool].devices -= gone[pool];
    const bool may_start = queued && !held.contains(id) && !has_leftover(id);
    if (job.demand.any_of.empty() || (!may_start && (stops || job.devices.empty()))) continue;
    JobView seen = view_of(job, free);
    if (queued && seen.measures && measured.count(job.workload) != 0) continue;
    view.jobs.push_back(std::move(seen));
  }
  for (JobView& seen : view.jobs) {
    seen.served = had[seen.owner];
    const auto weight = rules_.weights.find(seen.owner);
    if (weight != rules_.weights.end()) seen.weight = weight->second;
  }
  return view;
}

std::set<int64_t> Coordinator::held_back() const {
  std::map<int64_t, std::vector<const Job*>> queued;
  std::map<int64_t, int> with_devices;
  for (const auto& [id, job] : jobs_) {
    if (job.spec->array.at_once == 0) continue;
    const bool could_start = !job.demand.any_of.empty();
    if (could_start && job.fsm.status().state == JobState::kQueued)
      queued[job.array].push_back(&job);
    if (!job.devices.empty()) ++with_devices[job.array];
  }
  std::set<int64_t> held;
  for (auto& [array, jobs] : queued) {
    std::stable_sort(jobs.begin(), jobs.end(),
                     [](const Job* a, const Job* b) { return a->priority > b->priority; });
    const int places = std::max(0, jobs.front()->spec->array.at_once - with_devices[array]);
    for (size_t i = static_cast<size_t>(places); i < jobs.size(); ++i) held.insert(jobs[i]->id);
  }
  return held;
}

void Coordinator::decide() {
  undecided_ = false;
  const Nanos before = now();
  const QueueView seen = view();
  const Schedule wanted = schedule(around_.policy, seen);
  ++counters_.decisions;
  counters_.deciding += now() - before;
  carry_out(seen, wanted);
}

void Coordinator::carry_out(const QueueView& view, const Schedule& schedule) {
  reserved_for_.reset();
  if (schedule.reserved) reserved_for_ = view.jobs[schedule.reserved->job].id;
  std::vector<const PoolCounts*> wanted(view.jobs.size(), nullptr);
  for (const Placement& placement : schedule.run) wanted[placement.job] = &placement.devices;
  for (size_t i = 0; i < view.jobs.size(); ++i)
    if (view.jobs[i].runs() && view.jobs[i].preemptible && wanted[i] == nullptr)
      apply(jobs_.at(view.jobs[i].id), Preempted{});
  start(view, schedule.run);
}

/// Workloads: one job of each is enough.
std::set<std::string> Coordinator::measured_now() const {
  std::set<std::string> measured;
  for (const auto& [id, job] : jobs_)
    if (job.fsm.status().measuring) measured.insert(job.workload);
  return measured;
}

/// Devices that a job still waits for are not given to those that come after it.
void Coordinator::start(const QueueView& view, std::vector<Placement> placements) {
  std::sort(placements.begin(), placements.end(),
            [](const Placement& a, const Placement& b) { return a.turn < b.turn; });
  PoolCounts free = devices_.free_counts();
  std::set<std::string> measured = measured_now();
  for (const Placement& placement : placements) {
    const JobView& seen = view.jobs[placement.job];
    Job& job = jobs_.at(seen.id);
    if (seen.runs() || (seen.measures && !measured.insert(job.workload).second)) continue;
    bool enough = true;
    for (size_t pool = 0; pool < free.size(); ++pool) {
      enough &= placement.devices[pool] <= free[pool];
      free[pool] = std::max(0, free[pool] - placement.devices[pool]);
    }
    if (enough) set_devices(job, devices_.give(placement.devices, job.id, job.unfit.devices));
    if (job.devices.empty()) continue;  // when they are free, that is an event
    job.begun = now();
    find_demand(job);
    apply(job, DevicesGiven{.to_measure = seen.measures});
  }
}

std::optional<WhyJob> Coordinator::why(int64_t id) const {
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || is_final(found->second.fsm.status().state)) return std::nullopt;
  const Job& job = found->second;
  const JobStatus& status = job.fsm.status();
  WhyJob why;
  if (!job.devices.empty()) {
    why.reasons.push_back("it is " + std::string(name_of(status.state)) + " on " +
                          joined(job.devices));
    return why;
  }
  if (status.held) why.reasons.push_back("it is held");
  for (const int64_t before : job.after) {
    const auto state = state_of(before);
    if (!state || is_final(*state)) continue;
    why.reasons.push_back("it comes after job " + std::to_string(before) + ", which is " +
                          name_of(*state));
    if (why.remedy.empty()) why.remedy = "the end of job " + std::to_string(before);
  }
  if (status.not_before > now())
    why.reasons.push_back("it is tried again in " +
                          format_seconds(seconds_of(status.not_before - now())) +
                          ", after: " + status.cause);
  for (const std::string& unmet : job.demand.unmet)
    why.reasons.push_back("the devices there are would not do: " + unmet);
  if (!job.demand.any_of.empty() && status.state == JobState::kQueued) why_it_waits(job, &why);
  const bool wants_more = lacks_devices(job.demand.any_of);
  if (wants_more) why_nodes_are_missing(job, &why);
  if (wants_more || has_leftover(id)) why_devices_are_aside(&why);
  if (status.held) why.remedy = "motley release " + std::to_string(id);
  return why;
}

/// What others have does not help where only a node does that gives nothing now.
void Coordinator::why_nodes_are_missing(const Job& job, WhyJob* why) const {
  const Unfit unfit = unfit_for(job);
  const bool queued = job.fsm.status().state == JobState::kQueued;
  bool would_do = !queued || devices_.would_do_with("", *job.spec, unfit);
  for (const auto& [name, node] : nodes_) {
    const std::string fault = node.fault();
    if (fault.empty()) continue;
    why->reasons.push_back(fault);
    if (would_do || !devices_.would_do_with(name, *job.spec, unfit)) continue;
    would_do = true;
    why->remedy = node.state == NodeState::kReady ? "motley undrain " + name
                                                  : "node " + name + " coming back";
  }
}

bool Coordinator::lacks_devices(const std::vector<Alternative>& any_of) const {
  const PoolCounts free = devices_.free_counts();
  return std::none_of(any_of.begin(), any_of.end(),
                      [&](const Alternative& each) { return each.found_in(free); });
}

/// A line for each alternative, and who has what it waits for.
void Coordinator::why_it_lacks(const std::vector<Alternative>& any_of, WhyJob* why) const {
  const PoolCounts free = devices_.free_counts();
  int least_missing = INT32_MAX;
  for (const Alternative& each : any_of) {
    const int usable = each.usable_of(free);
    least_missing = std::min(least_missing, std::max(1, each.least - usable));
    why->reasons.push_back((&each == &any_of.front() ? "it needs " : "or it needs ") +
                           counted(each.least, "device") + " and " + std::to_string(usable) +
                           (usable == 1 ? " is" : " are") + " free that it admits" +
                           (usable < each.least ? "" : ", on which it found no plan"));
  }
  why->remedy = counted(least_missing, "device") + " more becoming free";
  for (const auto& [id, other] : jobs_)
    if (!other.devices.empty())
      why->reasons.push_back("job " + std::to_string(id) + " holds " + joined(other.devices));
}

void Coordinator::why_it_waits(const Job& job, WhyJob* why) const {
  why->position = position_of(job);
  if (held_back().contains(job.id)) {
    why->reasons.push_back("of its array " + std::to_string(job.array) + " at most " +
                           counted(job.spec->array.at_once, "job") +
                           " may have devices at once (array.at_once)");
    why->remedy = "the end of another job of the array";
    return;
  }
  const JobView seen = view_of(job, devices_.free_counts());
  if (seen.measures)
    why->reasons.push_back("it is measured first, on one device of each type that it may have");
  if (lacks_devices(seen.any_of)) why_it_lacks(seen.any_of, why);
  if (reserved_for_ && *reserved_for_ != job.id) {
    why->reasons.push_back("devices that it would take are kept for job " +
                           std::to_string(*reserved_for_));
    const auto other = jobs_.find(*reserved_for_);
    const int ahead = other == jobs_.end() ? INT_MAX : other->second.priority + 1;
    if (ahead <= ServiceSpec::kMostPriority && would_start_with(ahead, job.id))
      why->remedy =
          "motley update " + std::to_string(job.id) + " --set priority=" + std::to_string(ahead);
  }
  for (const auto& [id, other] : jobs_)
    if (other.fsm.status().measuring && other.workload == job.workload)
      why->reasons.push_back("job " + std::to_string(id) +
                             ", which trains the same, is being measured: that will serve both");
  why->starts_in = seconds_until_start(around_.policy, view(), job.id);
  if (why->position > 1)
    why->reasons.push_back(counted(why->position - 1, "job") + " before it in the queue");
  if (why->reasons.empty()) why->reasons.push_back("it is about to be looked at");
}

/// By the policy's own decision, were this its priority.
bool Coordinator::would_start_with(int priority, int64_t job) const {
  QueueView other = view();
  for (JobView& seen : other.jobs)
    if (seen.id == job) seen.priority = priority;
  const Schedule schedule = motley::schedule(around_.policy, other);
  return std::any_of(schedule.run.begin(), schedule.run.end(), [&](const Placement& placement) {
    return other.jobs[placement.job].id == job;
  });
}

/// By priority and submission, whatever the policy then makes of it.
int Coordinator::position_of(const Job& job) const {
  return 1 + static_cast<int>(std::count_if(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
           const Job& other = entry.second;
           if (other.fsm.status().state != JobState::kQueued) return false;
           return other.priority > job.priority ||
                  (other.priority == job.priority && other.id < job.id);
         }));
}

}  // namespace motley
