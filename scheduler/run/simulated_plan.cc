#include "scheduler/run/simulated_plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include "planner/questions/fleet_parts.h"
#include "scheduler/run/find_plan.h"

namespace motley {
namespace {

constexpr size_t kMostTypes = 4;

/// Whether a host of unlike devices has an assumed link within.
bool assumes_link_of_unlike(const FleetSpec& fleet, const ProfileForSimulation& from) {
  return std::any_of(from.assumed.begin(), from.assumed.end(), [&](const LinkProfile& link) {
    const FleetSpec host =
        part_of(fleet, [&](const DeviceSpec& device) { return device.host == link.between[0]; });
    return link.between[0] == link.between[1] && types_of(host).size() > 1;
  });
}

Result<SimulatedPlan> plan_all(const JobSpec& job, const FleetSpec& fleet,
                               const FleetSpec& admitted, const SimulationSources& sources) {
  MOTLEY_TRY(ProfileForSimulation from, profile_for_simulation(job, admitted, sources));
  MOTLEY_TRY(Plan plan, find_plan({job, fleet, from.profile}));
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
          {device.id, "quicker without its type, beside which others are linked worse"});
  *best = std::move(quicker);
}

}  // namespace

Result<SimulatedPlan> plan_simulated(const JobSpec& job, const FleetSpec& fleet,
                                     const SimulationSources& sources) {
  MOTLEY_TRY(const FleetSpec chosen, admitted(fleet, job));
  MOTLEY_TRY(SimulatedPlan best, plan_all(job, fleet, chosen, sources));
  const std::vector<std::string> types = types_of(chosen);
  if (types.size() > kMostTypes || !assumes_link_of_unlike(chosen, best.from)) return best;
  double bound = best.plan.search.lower_bound_step_seconds;
  for (const std::vector<std::string>& some : sets_of_types(types)) {
    if (some == types) continue;
    const FleetSpec part = only_types(chosen, some);
    Result<SimulatedPlan> other = plan_all(job, part, part, sources);
    if (!other && !means_no_plan(other.error())) return fail(other.error());
    if (!other) continue;
    bound = std::min(bound, other->plan.search.lower_bound_step_seconds);
    if (other->plan.prediction.step_seconds < best.plan.prediction.step_seconds)
      take(*std::move(other), chosen, &best);
  }
  best.plan.search.lower_bound_step_seconds = bound;
  best.plan.search.space += "; the quickest of all sets of types";
  best.plan.id = plan_id(best.plan);
  return best;
}

}  // namespace motley
