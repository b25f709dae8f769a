#include "scheduler/run/simulated_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "planner/pipelines/pipeline_search.h"
#include "planner/plain/grain_table.h"
#include "planner/questions/fleet_parts.h"
#include "scheduler/run/find_plan.h"

namespace motley {
namespace {

/// Each is planned for.
constexpr size_t kMostChoices = 27;

/// Hosts of unlike devices whose links within are assumed; of each the same is kept.
struct MixedHosts {
  std::set<std::string> hosts;
  std::vector<std::string> types;

  /// To keep all of them, or only those of one.
  size_t choices() const { return 1 + types.size(); }
};

/// Each by itself, unless these are too many choices: then those together that are alike; else
/// all.
std::vector<MixedHosts> mixed_hosts(const FleetSpec& fleet, const ProfileForSimulation& from) {
  std::map<std::string, std::map<std::string, int>> devices;  // by host and type
  for (const DeviceSpec& device : fleet.devices) ++devices[device.host][device.type];
  std::vector<MixedHosts> each, alike;
  std::map<std::map<std::string, int>, size_t> known;
  for (const LinkProfile& link : from.assumed) {
    const std::map<std::string, int>& here = devices[link.between[0]];
    if (link.between[0] != link.between[1] || here.size() < 2) continue;
    MixedHosts& own = each.emplace_back(MixedHosts{{link.between[0]}, {}});
    for (const auto& [type, count] : here) own.types.push_back(type);
    const auto [found, is_new] = known.emplace(here, alike.size());
    if (is_new) alike.push_back(own);
    alike[found->second].hosts.insert(link.between[0]);
  }
  if (each.empty()) return {};
  MixedHosts any;
  for (const MixedHosts& own : alike) {
    any.hosts.insert(own.hosts.begin(), own.hosts.end());
    for (const std::string& type : own.types)
      if (std::find(any.types.begin(), any.types.end(), type) == any.types.end())
        any.types.push_back(type);
  }
  for (const std::vector<MixedHosts>& all : {each, alike}) {
    size_t choices = 1;
    for (const MixedHosts& hosts : all)
      choices = std::min(choices * hosts.choices(), kMostChoices + 1);
    if (choices <= kMostChoices) return all;
  }
  return {std::move(any)};
}

/// The fleet by choice after choice, the first of them all of it. A host without a type keeps all.
std::vector<FleetSpec> kept(const FleetSpec& fleet, const std::vector<MixedHosts>& mixed) {
  std::set<std::pair<std::string, std::string>> there;
  for (const DeviceSpec& device : fleet.devices) there.emplace(device.host, device.type);
  std::vector<FleetSpec> all = {fleet};
  for (const MixedHosts& hosts : mixed) {
    const std::vector<FleetSpec> before = all;
    for (const std::string& type : hosts.types)
      for (const FleetSpec& one : before)
        all.push_back(part_of(one, [&](const DeviceSpec& device) {
          return device.type == type || !hosts.hosts.contains(device.host) ||
                 !there.contains({device.host, type});
        }));
  }
  return all;
}

bool has_all_pinned(const FleetSpec& fleet, const JobSpec& job) {
  const auto is_there = [&](const std::string& device) { return fleet.find(device) != nullptr; };
  return std::all_of(job.pin.replicas.begin(), job.pin.replicas.end(), [&](const auto& replica) {
    return std::all_of(replica.stages.begin(), replica.stages.end(), [&](const auto& stage) {
      return std::all_of(stage.devices.begin(), stage.devices.end(), is_there);
    });
  });
}

/// kNoPlan, too, where none can be below so many seconds; one that is not need not fit.
Result<SimulatedPlan> plan_all(const JobSpec& job, const FleetSpec& fleet,
                               const FleetSpec& admitted, const ProfileOf& profile_of,
                               double below) {
  MOTLEY_TRY(ProfileForSimulation from, profile_of(admitted));
  PlanRequest request{job, fleet, from.profile};
  request.below = below;
  MOTLEY_TRY(const LeastSeconds least, least_seconds_of_pipelines(request));
  if (least.step >= below) return fail(ErrorCode::kNoPlan, "none can be quicker");
  MOTLEY_TRY(Plan plan, find_plan(request));
  return SimulatedPlan{std::move(from), std::move(plan)};
}

/// Instead of one of all devices.
void take(SimulatedPlan quicker, const FleetSpec& admitted, SimulatedPlan* best) {
  std::set<std::string> known;
  for (const RankPlacement& rank : quicker.plan.ranks) known.insert(rank.device);
  for (const LeftOut& left : quicker.plan.left_out) known.insert(left.device);
  for (const DeviceSpec& device : admitted.devices)
    if (!known.contains(device.id))
      quicker.plan.left_out.push_back(
          {device.id, "quicker without it, beside which others of its host are linked worse"});
  *best = std::move(quicker);
}

}  // namespace

Result<SimulatedPlan> plan_simulated(const JobSpec& job, const FleetSpec& fleet,
                                     const ProfileOf& profile_of) {
  MOTLEY_TRY(const FleetSpec chosen, admitted(fleet, job));
  MOTLEY_TRY(SimulatedPlan best, plan_all(job, fleet, chosen, profile_of, kNever));
  const std::vector<MixedHosts> mixed = mixed_hosts(chosen, best.from);
  if (mixed.empty()) return best;
  const std::string space = best.plan.search.space;
  double bound = best.plan.search.lower_bound_step_seconds;
  for (const FleetSpec& part : kept(chosen, mixed)) {
    if (part.devices.size() == chosen.devices.size() || !has_all_pinned(part, job)) continue;
    Result<SimulatedPlan> other =
        plan_all(job, part, part, profile_of, best.plan.prediction.step_seconds);
    if (!other && !means_no_plan(other.error())) return fail(other.error());
    if (!other) continue;
    bound = std::min(bound, other->plan.search.lower_bound_step_seconds);
    if (other->plan.prediction.step_seconds < best.plan.prediction.step_seconds)
      take(*std::move(other), chosen, &best);
  }
  best.plan.search.lower_bound_step_seconds = bound;
  best.plan.search.space = space + "; of unlike cards on a host all, or those of one type";
  best.plan.id = plan_id(best.plan);
  return best;
}

}  // namespace motley
