#pragma once
// Sets of a fleet's devices, by how many of each group of alike ones they have.

#include <string>
#include <vector>

#include "planner/questions/fleet_parts.h"

namespace motley {

/// Of the admitted devices of a request, which outlives it.
class DeviceSets {
 public:
  /// Devices of each group. Those of a group are alike in all but their price; those that the job
  /// pins are meant, then the cheaper ones.
  using Counts = std::vector<int>;

  /// kInvalidSpec where the profile lacks a device.
  static Result<DeviceSets> make(const PlanRequest& request);

  /// Each but the empty one, the whole fleet first; none where they are more than 64.
  std::vector<Counts> every() const;
  /// Where they are more: all devices of each set of types (sets_of_types), a device of each type;
  /// with all that are pinned, as all that follow from them.
  std::vector<Counts> beginnings() const;
  /// Without a type or, of few hosts, a host; without half of a type's devices, a quarter, …, from
  /// 16 on one less each time: those that leave as few hosts in use as can be.
  std::vector<Counts> smaller(const Counts& counts) const;

  /// The request's fleet with these devices alone.
  FleetSpec fleet(const Counts& counts) const;
  /// Of its ranks' devices.
  Counts used_by(const Plan& plan) const;
  /// "2 fast and 1 slow".
  std::string words(const Counts& counts) const;

 private:
  struct Group {
    std::string type, host;
    std::vector<const DeviceSpec*> devices;  ///< in the order in which they are meant
    int pinned = 0;                          ///< of these
  };

  explicit DeviceSets(const FleetSpec& fleet) : fleet_(&fleet) {}
  Counts whole() const;
  Counts without(Counts counts, const std::string& type, int devices) const;
  int count_of(const Counts& counts, const std::string& type) const;
  void keep_pinned(Counts* counts) const;

  const FleetSpec* fleet_;
  std::vector<Group> groups_;
  std::vector<std::string> types_, hosts_;
};

}  // namespace motley
