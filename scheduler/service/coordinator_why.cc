// Why a job waits, and what would start it: the policy itself is asked, with that changed.

#include <algorithm>
#include <cstdint>
#include <set>

#include "core/units.h"
#include "scheduler/policies/forecast.h"
#include "scheduler/service/coordinator.h"
#include "scheduler/service/event_text.h"

namespace motley {
namespace {

/// Beyond which nothing more is tried: people wait for the answer, and the service for us.
constexpr Nanos kLongestSearch{200'000'000};
/// Jobs whose end is tried.
constexpr size_t kMostEnds = 8;

std::string counted(int count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

/// "the end of job 3", "the end of jobs 3, 4 and 5"
std::string end_of(const std::set<int64_t>& jobs) {
  std::string text = jobs.size() == 1 ? "the end of job " : "the end of jobs ";
  size_t left = jobs.size();
  for (const int64_t job : jobs) {
    text += std::to_string(job);
    --left;
    text += left > 1 ? ", " : left == 1 ? " and " : "";
  }
  return text;
}

std::string opening_of(const Node& node) {
  return node.state == NodeState::kReady ? "motley undrain " + node.name
                                         : "node " + node.name + " coming back";
}

}  // namespace

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
  why_not_before_others(job, &why);
  if (status.not_before > now())
    why.reasons.push_back("it is tried again in " +
                          format_seconds(seconds_of(status.not_before - now())) +
                          ", after: " + status.cause);
  for (const std::string& unmet : job.demand.unmet)
    why.reasons.push_back("the devices there are would not do: " + unmet);
  if (status.state == JobState::kQueued) why_it_waits(job, &why);
  const bool wants_more = lacks_devices(job.demand.any_of);
  if (wants_more) why_nodes_are_missing(&why);
  if (wants_more || has_leftover(id)) why_devices_are_aside(&why);
  if (status.held) why.remedy = "motley release " + std::to_string(id);
  return why;
}

void Coordinator::why_not_before_others(const Job& job, WhyJob* why) const {
  std::set<int64_t> unfinished;
  for (const int64_t before : job.after) {
    const auto state = state_of(before);
    if (!state || is_final(*state)) continue;
    why->reasons.push_back("it comes after job " + std::to_string(before) + ", which is " +
                           name_of(*state));
    unfinished.insert(before);
  }
  if (!unfinished.empty()) why->remedy = end_of(unfinished);
}

void Coordinator::why_nodes_are_missing(WhyJob* why) const {
  for (const auto& [name, node] : nodes_)
    if (const std::string fault = node.fault(); !fault.empty()) why->reasons.push_back(fault);
}

bool Coordinator::lacks_devices(const std::vector<Alternative>& any_of) const {
  const PoolCounts free = devices_.free_counts();
  return std::none_of(any_of.begin(), any_of.end(),
                      [&](const Alternative& each) { return each.found_in(free); });
}

/// A line for each alternative, and who has what it waits for.
void Coordinator::why_it_lacks(const std::vector<Alternative>& any_of, WhyJob* why) const {
  const PoolCounts free = devices_.free_counts();
  for (const Alternative& each : any_of) {
    const int usable = each.usable_of(free);
    why->reasons.push_back((&each == &any_of.front() ? "it needs " : "or it needs ") +
                           counted(each.least, "device") + " and " + std::to_string(usable) +
                           (usable == 1 ? " is" : " are") + " free that it admits" +
                           (usable < each.least ? "" : ", on which it found no plan"));
  }
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
  if (reserved_for_ && *reserved_for_ != job.id)
    why->reasons.push_back("devices that it would take are kept for job " +
                           std::to_string(*reserved_for_));
  for (const auto& [id, other] : jobs_)
    if (other.fsm.status().measuring && other.workload == job.workload)
      why->reasons.push_back("job " + std::to_string(id) +
                             ", which trains the same, is being measured: that will serve both");
  why->remedy = remedy_for(job);
  if (!seen.any_of.empty()) why->starts_in = seconds_until_start(around_.policy, view(), job.id);
  if (why->position > 1)
    why->reasons.push_back(counted(why->position - 1, "job") + " before it in the queue");
  if (why->reasons.empty()) why->reasons.push_back("it is about to be looked at");
}

bool Coordinator::would_start(int64_t job, const Change& change) const {
  std::optional<DevicePools> opened;
  if (!change.opened.empty()) {
    opened = devices_;
    opened->set_access(change.opened, DeviceAccess::kOpen);
  }
  QueueView other = view_on(opened ? *opened : devices_);
  std::erase_if(other.jobs, [&](const JobView& seen) { return change.ended.contains(seen.id); });
  for (JobView& seen : other.jobs)
    if (seen.id == job) seen.priority = change.priority.value_or(seen.priority);
  const Schedule schedule = motley::schedule(around_.policy, other);
  return std::any_of(schedule.run.begin(), schedule.run.end(), [&](const Placement& placement) {
    return other.jobs[placement.job].id == job;
  });
}

/// Changes by how near they are: one alone before several.
class Coordinator::Remedies {
 public:
  Remedies(const Coordinator& coordinator, const Job& job)
      : coordinator_(coordinator), job_(job), begun_(coordinator.now()) {
    for (const auto& [id, other] : coordinator.jobs_)
      if (!other.devices.empty() && running_.size() < kMostEnds) running_.push_back(id);
    for (const auto& [name, node] : coordinator.nodes_)
      if (!node.fault().empty()) closed_.push_back(&node);
  }

  /// Empty: none was found.
  std::string nearest() const {
    if (starts({})) return "";
    for (const Node* node : closed_)
      if (starts({.opened = node->name})) return opening_of(*node);
    const std::string single = single_end(), ahead = going_ahead();
    if (!single.empty() || !ahead.empty())
      return single + (single.empty() || ahead.empty() ? "" : ", or ") + ahead;
    if (const auto ended = ends({})) return end_of(*ended);
    for (const Node* node : closed_)
      if (const auto ended = ends({.opened = node->name}))
        return opening_of(*node) + ", then " + end_of(*ended);
    const auto priorities = higher_priorities();
    if (!priorities.empty())
      if (const auto ended = ends({.priority = priorities.back()}))
        return update_to(priorities.back()) + ", then " + end_of(*ended);
    return "";
  }

 private:
  bool starts(const Change& change) const {
    return coordinator_.now() - begun_ < kLongestSearch &&
           coordinator_.would_start(job_.id, change);
  }

  std::string single_end() const {
    for (const int64_t id : running_)
      if (starts({.ended = {id}})) return end_of({id});
    return "";
  }

  std::string update_to(int priority) const {
    return "motley update " + std::to_string(job_.id) +
           " --set priority=" + std::to_string(priority);
  }

  std::string going_ahead() const {
    for (const int priority : higher_priorities())
      if (starts({.priority = priority})) return update_to(priority);
    return "";
  }

  /// By which it goes before those that wait, and before those that run and may be stopped.
  std::vector<int> higher_priorities() const {
    int of_waiting = job_.priority - 1, of_running = of_waiting;
    for (const auto& [id, other] : coordinator_.jobs_) {
      const bool waits = other.fsm.status().state == JobState::kQueued;
      if (waits && id != job_.id) of_waiting = std::max(of_waiting, other.priority);
      if (coordinator_.may_be_stopped(other)) of_running = std::max(of_running, other.priority);
    }
    std::vector<int> higher;
    for (const int priority : std::set<int>{of_waiting + 1, of_running + 1})
      if (priority > job_.priority && priority <= ServiceSpec::kMostPriority)
        higher.push_back(priority);
    return higher;
  }

  /// The fewest of the running jobs, from the first on, that would do beside the change.
  std::optional<std::set<int64_t>> ends(Change change) const {
    for (const int64_t id : running_) {
      change.ended.insert(id);
      if (starts(change)) return change.ended;
    }
    return std::nullopt;
  }

  const Coordinator& coordinator_;
  const Job& job_;
  const Nanos begun_;
  std::vector<int64_t> running_;
  std::vector<const Node*> closed_;
};

std::string Coordinator::remedy_for(const Job& job) const { return Remedies(*this, job).nearest(); }

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
