#pragma once
// Which devices the stages of a packing get.

#include <vector>

#include "planner/pipelines/pipeline_costs.h"

namespace motley {

/// Of each group those that come first in the fleet; a tensor set's are of one host. Outlived by
/// what it is made of.
class StageDevices {
 public:
  StageDevices(const std::vector<DeviceGroup>& groups, const PipelineCosts& costs);

  /// Puts aside devices for all shared stages, the largest first, each on the host that then has
  /// fewest left; false where no host has them.
  bool take_shared(const std::vector<Pipeline>& pipelines);
  /// For a stage of a group or, put aside, of a tensor set; by member.
  std::vector<const DeviceSpec*> take(int group);
  /// Not taken, by group.
  std::vector<const DeviceSpec*> left() const;

 private:
  using Free = std::vector<const DeviceSpec*>;
  bool put_aside(int group);

  const PipelineCosts& costs_;
  std::vector<Free> free_;                   ///< by group
  std::vector<std::pair<int, Free>> aside_;  ///< tensor sets', in the order of their stages
};

}  // namespace motley
