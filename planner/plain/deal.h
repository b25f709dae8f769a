#pragma once
// The heart of the first form: dealing whole grains to unlike devices so that the step is shortest.
//
// A deal uses n devices, each with at least one grain. With a section of s_i(g) seconds for g
// grains, from a table,
//
//   step = max s_i(g_i) + reduction(n)
//
// s_i is whatever was measured: it may even fall from g to g + 1. Ranges of n are halved, those
// with the least bound first (planner/plain/deal_capacity.h); for one n the least bound on s is
// found by bisection over the values that occur. Whether a bound can be met is first asked of a
// relaxation, where a device may take any number up to the most it can compute in time; its n most
// capable devices decide. Where their curves have no holes below the bound, that is the answer;
// otherwise the sums that can really be dealt are enumerated (planner/plain/grain_sums.h).

#include <cstdint>
#include <functional>
#include <vector>

#include "planner/plain/grain_table.h"

namespace motley {

struct DealProblem {
  int grains = 0;          ///< of the step
  bool has_short = false;  ///< one of them is short: some used device takes it
  std::vector<const GrainTable*> devices;
  std::vector<double> reduction;  ///< by number of devices, index 0 to devices.size()
  /// Instead of it: a bound on the reduction of any number of devices from `low` to `high`, exact
  /// where these are equal.
  std::function<double(int low, int high)> least_reduction = nullptr;
  int least_devices = 1;
  int most_devices = 0;
  /// Every time the devices' tables hold, rising (section_times); others do no harm.
  const std::vector<double>* section_times = nullptr;
  double cutoff = kNever;  ///< slower deals are of no interest

  double reduction_of(int low, int high) const;
};

std::vector<double> section_times(const std::vector<const GrainTable*>& tables);

struct Deal {
  double step_seconds = kNever;  ///< kNever: none
  std::vector<int> grains;       ///< by device; 0: not used
  int short_device = -1;         ///< index, when there is a short grain

  int devices() const;
};

struct DealResult {
  Deal deal;
  /// No deal of this problem is quicker, or none is below the cutoff; equals the deal's step unless
  /// the enumeration was too large.
  double lower_bound = kNever;
  int64_t nodes = 0;  ///< bounds tried
};

/// Of the quickest deals one with the fewest devices. Equal devices take the bigger share in order.
DealResult best_deal(const DealProblem& problem);

/// What a deal costs by the formula above, from its tables.
double deal_seconds(const DealProblem& problem, const Deal& deal);

}  // namespace motley
