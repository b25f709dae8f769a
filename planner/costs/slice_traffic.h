#pragma once
// What ranks tell each other of gradients and weights at the end of a step, however each replica is
// cut.

#include <string>
#include <vector>

#include "core/plan.h"
#include "planner/costs/cost_model.h"

namespace motley {

/// Of one rank.
struct SliceTraffic {
  std::vector<Rank> peers;  ///< whom it exchanges slices with, rising, itself included
  int64_t sent = 0;         ///< elements: gradients to owners, then results to holders
  int64_t received = 0;
  int64_t held = 0;  ///< elements of all it holds
  int64_t owned = 0;
};

/// Of every rank of a valid plan.
std::vector<SliceTraffic> slice_traffic(const Plan& plan, const ModelSpec& model);

/// What a rank that sends or receives so many of all the model's `whole` elements, to and from
/// these at least two, is taken to need for it: a reduction of everything over as many ranks, in
/// proportion.
double exchange_seconds(const ReductionModel& reduction, const Plan& plan,
                        const std::vector<Rank>& peers, double elements, double whole);

/// Of these ranks, each once.
std::vector<std::string> hosts_of(const Plan& plan, const std::vector<Rank>& ranks);

}  // namespace motley
