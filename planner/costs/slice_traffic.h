#pragma once
// What ranks tell each other of gradients and weights at the end of a step, however each replica is
// cut.

#include <string>
#include <vector>

#include "core/plan.h"
#include "planner/costs/cost_model.h"

namespace motley {

/// What a rank or a host exchanges of what the same ranks hold.
struct HeldTraffic {
  size_t holders = 0;   ///< by number in PlanTraffic
  double elements = 0;  ///< that it sends or receives, whichever are more

  bool operator==(const HeldTraffic&) const = default;
};

/// Of one rank.
struct SliceTraffic {
  std::vector<Rank> peers;  ///< whom it exchanges slices with, rising, itself included
  std::vector<HeldTraffic> held_alike;
  int64_t sent = 0;  ///< elements: gradients to owners, then results to holders
  int64_t received = 0;
  int64_t held = 0;  ///< elements of all it holds
  int64_t owned = 0;

  bool operator==(const SliceTraffic&) const = default;
};

/// Of the ranks of one host with those of others. What several of them have in common goes over the
/// host's link once (core/reduction.h).
struct HostTraffic {
  std::vector<Rank> peers;  ///< of all its ranks, rising, these included
  std::vector<HeldTraffic> held_alike;
  double elements() const;  ///< in all

  bool operator==(const HostTraffic&) const = default;
};

struct PlanTraffic {
  std::vector<SliceTraffic> ranks;
  std::vector<HostTraffic> hosts;          ///< in the order in which ranks are on them
  std::vector<std::vector<Rank>> holders;  ///< rising

  bool operator==(const PlanTraffic&) const = default;
};

/// Of a plan that is valid, but may have no owners yet: then of even ones.
PlanTraffic slice_traffic(const Plan& plan, const ModelSpec& model);

/// What each of all the model's `whole` elements is taken to need that a rank sends or receives, to
/// and from these: a reduction of everything over as many ranks, in proportion. 0 of one.
double exchange_seconds(const ReductionModel& reduction, const Plan& plan,
                        const std::vector<Rank>& holders, double whole);

/// The same of an element that a host of these ranks sends or receives: in proportion to what each
/// host has to exchange when all ranks hold everything.
double host_exchange_seconds(const ReductionModel& reduction, const Plan& plan,
                             const std::vector<Rank>& holders, double whole);

/// Of these ranks, each once.
std::vector<std::string> hosts_of(const Plan& plan, const std::vector<Rank>& ranks);

}  // namespace motley
