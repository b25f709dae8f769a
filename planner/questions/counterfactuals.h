#pragma once
// What would have to be different for a plan to be quicker or slower: memory, devices, links. Each
// is another request, planned again: as dear as its searches, so only for those who ask.

#include <string>
#include <vector>

#include "planner/questions/fleet_parts.h"

namespace motley {

struct Counterfactual {
  std::string what;         ///< "with 24 GB on r1/0"
  double step_seconds = 0;  ///< 0: no plan then
};

/// How far the step must change for a counterfactual to be told, and how many are.
inline constexpr double kLeastChange = 0.01;
inline constexpr size_t kMostCounterfactuals = 6;

/// Those that change the step of `plan`, which `search` found of `request`; the largest effect
/// first. Tried are: of the devices of a type with the same memory one, and all of them, with the
/// next size that hardware comes in and that admits a larger micro-batch, then with twice what they
/// have; each type left out; each of the slowest links between hosts with twice the bandwidth, and
/// all of them; less of something only where most of it helps. What the search fails with other
/// than for want of a plan (means_no_plan).
Result<std::vector<Counterfactual>> counterfactuals(const PlanRequest& request, const Plan& plan,
                                                    const SearchPlan& search);

/// One a line: "with 24 GB on r1/0: 8.0 % faster (412 ms to 381 ms/step)".
std::string counterfactual_text(const Plan& plan, const std::vector<Counterfactual>& list);

/// The smallest size of memory that is sold and at least `needed`: 1, 1.5, 2, 3, 4, 6, 8, 12, … of
/// any power of 1000, and what else GPUs have.
Bytes memory_size_from(Bytes needed);

}  // namespace motley
