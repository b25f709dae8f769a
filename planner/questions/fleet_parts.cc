#include "planner/questions/fleet_parts.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <set>

namespace motley {
namespace {

using TypeSet = std::vector<std::string>;

/// Those that have their bit in `set`.
TypeSet types_in(const TypeSet& types, uint32_t set) {
  TypeSet chosen;
  for (size_t i = 0; i < types.size(); ++i)
    if ((set >> i & 1) != 0) chosen.push_back(types[i]);
  return chosen;
}

std::vector<TypeSet> every_set_of(const TypeSet& types) {
  std::vector<TypeSet> sets;
  for (uint32_t set = (uint32_t{1} << types.size()) - 1; set > 0; --set)
    sets.push_back(types_in(types, set));
  return sets;
}

/// All, all but one, each alone.
std::vector<TypeSet> some_sets_of(const TypeSet& types) {
  std::vector<TypeSet> sets{types};
  for (const std::string& without : types) {
    TypeSet& rest = sets.emplace_back(types);
    std::erase(rest, without);
    sets.push_back({without});
  }
  return sets;
}

}  // namespace

bool means_no_plan(const Error& error) {
  return error.code == ErrorCode::kNoPlan || error.code == ErrorCode::kNoDevice ||
         error.code == ErrorCode::kInvalidSpec || error.code == ErrorCode::kUnsupported;
}

std::vector<std::string> types_of(const FleetSpec& fleet) {
  std::vector<std::string> types;
  for (const DeviceSpec& device : fleet.devices)
    if (std::find(types.begin(), types.end(), device.type) == types.end())
      types.push_back(device.type);
  return types;
}

std::vector<std::vector<std::string>> sets_of_types(const std::vector<std::string>& types) {
  return types.size() <= size_t{kMostTypesForEverySet} ? every_set_of(types) : some_sets_of(types);
}

FleetSpec part_of(const FleetSpec& fleet, const std::function<bool(const DeviceSpec&)>& keep) {
  FleetSpec part = fleet;
  std::erase_if(part.devices, [&](const DeviceSpec& device) { return !keep(device); });
  return part;
}

FleetSpec only_types(const FleetSpec& fleet, const std::vector<std::string>& types) {
  return part_of(fleet, [&](const DeviceSpec& device) {
    return std::find(types.begin(), types.end(), device.type) != types.end();
  });
}

FleetSpec used_by(const Plan& plan, const FleetSpec& fleet) {
  std::set<std::string> used;
  for (const RankPlacement& rank : plan.ranks) used.insert(rank.device);
  return part_of(fleet, [&](const DeviceSpec& device) { return used.contains(device.id); });
}

std::string listed_types(const std::vector<std::string>& types) {
  std::string text;
  for (size_t i = 0; i < types.size(); ++i) {
    if (i > 0) text += i + 1 == types.size() ? " and " : ", ";
    text += types[i];
  }
  return text;
}

std::string short_percent(double share) {
  char text[32];
  const double percent = share * 100;
  std::snprintf(text, sizeof text, "%.*f %%", std::abs(percent) < 9.95 ? 1 : 0, percent);
  return text;
}

std::string speed_text(double seconds, double others) {
  const double ratio = others / seconds;
  if (ratio >= 0.5 && ratio < 2)
    return short_percent(std::abs(ratio - 1)) + (ratio > 1 ? " faster" : " slower");
  char text[32];
  std::snprintf(text, sizeof text, ratio < 1 ? "%.2fx as slow" : "%.2fx as fast",
                ratio < 1 ? 1 / ratio : ratio);
  return text;
}

}  // namespace motley
