// Who is given what: the view that policies see, and what their schedule means for the jobs.

#include <algorithm>

#include "core/units.h"
#include "scheduler/service/coordinator.h"
#include "scheduler/service/event_text.h"

namespace motley {
namespace {

/// Until a profile of the job says better, all devices count the same.
constexpr double kUnmeasuredRate = 1;

std::string counted(int count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

JobView Coordinator::view_of(const Job& job) const {
  JobView seen;
  seen.id = job.id;
  seen.owner = job.owner;
  seen.priority = job.priority;
  seen.submitted = static_cast<double>(job.id);  // numbers rise with submission
  seen.any_of = {*job.demand};
  seen.speeds = SpeedTable(devices_.pool_count());
  for (size_t pool = 0; pool < devices_.pool_count(); ++pool)
    seen.speeds.add(pool, 1, kUnmeasuredRate);
  if (!job.devices.empty()) seen.held = devices_.held_by(job.id);
  return seen;
}

bool Coordinator::may_be_stopped(const Job& job, int priority) const {
  // Nobody would get what it has of a node that is to be empty.
  return job.preemptible && job.fsm.status().state == JobState::kRunning &&
         sum_of(devices_.closed_held_by(job.id)) == 0 &&
         (priority > job.priority || now() - job.begun >= rules_.least_run);
}

double Coordinator::device_seconds(const Job& job) const {
  if (job.devices.empty()) return 0;
  return seconds_of(now() - job.begun) * static_cast<double>(job.devices.size());
}

QueueView Coordinator::view() const {
  QueueView view;
  view.now = seconds_of(now());
  view.pools = devices_.pools();
  int highest = 0;  // of those that wait
  std::map<std::string, double> had = had_;
  for (const auto& [id, job] : jobs_) {
    const bool queued = job.fsm.status().state == JobState::kQueued;
    if (queued) highest = std::max(highest, job.priority);
    had[job.owner] += device_seconds(job);
    // What one that stops has is as good as free, and not to be taken by whoever comes first.
    const bool stops = job.fsm.status().state == JobState::kStopping;
    const PoolCounts gone = devices_.closed_held_by(id);
    for (size_t pool = 0; stops && pool < gone.size(); ++pool)
      view.pools[pool].devices -= gone[pool];
    if (job.demand && (queued || (!stops && !job.devices.empty())))
      view.jobs.push_back(view_of(job));
  }
  for (JobView& seen : view.jobs) {
    seen.served = had[seen.owner];
    seen.preemptible = may_be_stopped(jobs_.at(seen.id), highest);
  }
  return view;
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
  // A job that runs is stopped for another, not for other devices.
  for (size_t i = 0; i < view.jobs.size(); ++i)
    if (view.jobs[i].runs() && view.jobs[i].preemptible && wanted[i] == nullptr)
      apply(jobs_.at(view.jobs[i].id), Preempted{});
  start(view, schedule.run);
}

/// Devices that a job still waits for are not given to those that come after it.
void Coordinator::start(const QueueView& view, std::vector<Placement> placements) {
  std::sort(placements.begin(), placements.end(),
            [](const Placement& a, const Placement& b) { return a.turn < b.turn; });
  PoolCounts free = devices_.free_counts();
  for (const Placement& placement : placements) {
    if (view.jobs[placement.job].runs()) continue;
    bool enough = true;
    for (size_t pool = 0; pool < free.size(); ++pool) {
      enough &= placement.devices[pool] <= free[pool];
      free[pool] = std::max(0, free[pool] - placement.devices[pool]);
    }
    Job& job = jobs_.at(view.jobs[placement.job].id);
    if (enough) job.devices = devices_.give(placement.devices, job.id, job.spec->is_program());
    if (job.devices.empty()) continue;  // when they are free, that is an event
    job.begun = now();
    find_demand(job);
    apply(job, DevicesGiven{});
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
  if (status.held) {
    why.reasons.push_back("it is held");
    why.remedy = "motley release " + std::to_string(id);
  }
  for (const int64_t before : job.after)
    if (const auto state = state_of(before); state && !is_final(*state))
      why.reasons.push_back("it comes after job " + std::to_string(before) + ", which is " +
                            name_of(*state));
  if (status.not_before > now())
    why.reasons.push_back("it is tried again in " +
                          format_seconds(seconds_of(status.not_before - now())) +
                          ", after: " + status.cause);
  if (!job.demand) why.reasons.push_back("the devices there are would not do: " + job.unmet);
  if (job.demand && status.state == JobState::kQueued) why_it_waits(job, &why);
  const bool wants_more = !job.demand || usable_for(*job.demand) < job.demand->least;
  for (const auto& [name, node] : nodes_)
    if (const std::string fault = node.fault(); wants_more && !fault.empty())
      why.reasons.push_back(fault);
  return why;
}

/// Of those that are free.
int Coordinator::usable_for(const Alternative& demand) const {
  const PoolCounts free = devices_.free_counts();
  int usable = 0;
  for (size_t pool = 0; pool < free.size(); ++pool) {
    const int here = std::min(free[pool], demand.limit[pool]);
    usable = demand.mix ? usable + here : std::max(usable, here);
  }
  return usable;
}

void Coordinator::why_it_waits(const Job& job, WhyJob* why) const {
  why->position = position_of(job);
  const int usable = usable_for(*job.demand);
  const int missing = job.demand->least - usable;
  if (missing > 0) {
    why->reasons.push_back("it needs " + counted(job.demand->least, "device") + " and " +
                           std::to_string(usable) + (usable == 1 ? " is" : " are") +
                           " free that it admits");
    why->remedy = counted(missing, "device") + " more becoming free";
  }
  for (const auto& [id, other] : jobs_)
    if (missing > 0 && !other.devices.empty())
      why->reasons.push_back("job " + std::to_string(id) + " holds " + joined(other.devices));
  if (reserved_for_ && *reserved_for_ != job.id)
    why->reasons.push_back("job " + std::to_string(*reserved_for_) +
                           " has waited longer for devices that it would take");
  if (why->position > 1)
    why->reasons.push_back(counted(why->position - 1, "job") + " before it in the queue");
  if (why->reasons.empty()) why->reasons.push_back("it is about to be looked at");
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
