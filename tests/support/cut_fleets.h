#pragma once
// Fleets on which models are cut, for golden plans and benchmarks.

#include <functional>
#include <string>
#include <vector>

#include "tests/support/planning_case.h"

namespace motley::testing {

struct CutFleet {
  std::string name;  ///< begins with the number of devices
  std::function<PlanningCase()> make;
};

const std::vector<CutFleet>& cut_fleets();
/// Of hundreds of devices, too long to be read.
const std::vector<CutFleet>& large_cut_fleets();

}  // namespace motley::testing
