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

/// Of the ranks of one host with those of others. What several of them have in common goes over the
/// host's link once (core/reduction.h).
struct HostTraffic {
  std::vector<Rank> peers;  ///< of all its ranks, rising, these included
  double elements = 0;      ///< that it sends or receives, whichever are more
};

struct PlanTraffic {
  std::vector<SliceTraffic> ranks;
  std::vector<HostTraffic> hosts;  ///< in the order in which ranks are on them
};

/// Of a valid plan.
PlanTraffic slice_traffic(const Plan& plan, const ModelSpec& model);

/// What a rank that sends or receives so many of all the model's `whole` elements, to and from
/// these at least two, is taken to need for it: a reduction of everything over as many ranks, in
/// proportion.
double exchange_seconds(const ReductionModel& reduction, const Plan& plan,
                        const std::vector<Rank>& peers, double elements, double whole);

/// What hosts of these ranks, of which one sends or receives so many elements, are taken to need
/// for it: the same of what each host has to exchange when all ranks hold everything.
double host_exchange_seconds(const ReductionModel& reduction, const Plan& plan,
                             const HostTraffic& traffic, double whole);

/// Of these ranks, each once.
std::vector<std::string> hosts_of(const Plan& plan, const std::vector<Rank>& ranks);

}  // namespace motley
