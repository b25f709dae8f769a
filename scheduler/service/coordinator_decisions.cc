// Who is given what: the view that policies see, and what their schedule means for the jobs.

#include <algorithm>
#include <set>

#include "scheduler/service/coordinator.h"

namespace motley {
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

QueueView Coordinator::view_on(const DevicePools& devices) const {
  QueueView view;
  view.now = seconds_of(now());
  view.pools = devices.pools();
  const PoolCounts free = devices.free_counts();
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
    if (!may_start && (stops || job.devices.empty())) continue;
    JobView seen = &devices == &devices_ ? view_of(job, free) : view_of(job_on(devices, job), free);
    if (seen.any_of.empty()) continue;
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

Coordinator::Job Coordinator::job_on(const DevicePools& devices, Job job) const {
  if (job.devices.empty()) job.demand = devices.demand(*job.spec, unfit_for(job));
  return job;
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
    // A database that was put back knows less: what those attempts came to is not this one's.
    const Epoch newest = around_.launcher.newest(job.id);
    apply(job, DevicesGiven{.to_measure = seen.measures, .newest_attempt = newest});
  }
}

}  // namespace motley
