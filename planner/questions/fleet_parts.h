#pragma once
// Parts of a fleet, to plan as if the rest were not there.

#include <functional>
#include <string>
#include <vector>

#include "core/plan.h"
#include "core/spec/fleet_spec.h"
#include "planner/request.h"

namespace motley {

/// Any form of plan search (planner/plain/search.h).
using SearchPlan = std::function<Result<Plan>(const PlanRequest& request)>;

/// Whether an error of a search says that these devices cannot do it, not that the search failed.
bool means_no_plan(const Error& error);

/// The types of its devices, each once, in the order of the fleet.
std::vector<std::string> types_of(const FleetSpec& fleet);

/// Of more types than this not every set is planned.
inline constexpr int kMostTypesForEverySet = 12;

/// Every set of these types but the empty one, all of them first; of too many all, all but one
/// each, each alone.
std::vector<std::vector<std::string>> sets_of_types(const std::vector<std::string>& types);

/// The fleet with only the devices of which `keep` is true.
FleetSpec part_of(const FleetSpec& fleet, const std::function<bool(const DeviceSpec&)>& keep);

/// Its devices of these types.
FleetSpec only_types(const FleetSpec& fleet, const std::vector<std::string>& types);

/// Its devices that a plan uses, in its order.
FleetSpec used_by(const Plan& plan, const FleetSpec& fleet);

/// "fast", "fast and slow", "fast, slow and old".
std::string listed_types(const std::vector<std::string>& types);

/// 0.12 as "12 %", 0.012 as "1.2 %".
std::string short_percent(double share);

/// What taking `seconds` instead of `others` means: "12 % faster", "2.31x as fast", "12 % slower",
/// "2.31x as slow".
std::string speed_text(double seconds, double others);

}  // namespace motley
