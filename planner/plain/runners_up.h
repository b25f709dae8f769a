#pragma once
// Why the others lost: what --explain prints of plans and devices that were not chosen.

#include <string>
#include <vector>

#include "planner/plain/grain_search.h"

namespace motley {

/// Whether two steps differ by no more than rounding does: whole nanoseconds, sums in another
/// order.
bool equally_quick(double step_seconds, double other_step_seconds);

/// The best step of one grain tried; kNever when it is slower than the plan's.
struct GrainResult {
  int grain = 0;
  double step_seconds = kNever;
};

/// "1, 2, 4".
std::string grains_tried(const std::vector<GrainResult>& tried);

/// Reasons for the candidates the plan does not use. `finer_tried`: no deal of finer grains
/// is quicker.
std::vector<LeftOut> reasons_left_out(const Candidates& candidates, const GrainSearch& search,
                                      const Deal& chosen, bool finer_tried);

/// Other grains, the equal split, the quickest device alone, larger micro-batches; best first, the
/// impossible ones last.
std::vector<RejectedPlan> runners_up(const PlanRequest& request, const Candidates& candidates,
                                     const ReductionTable& reduction,
                                     const std::vector<GrainResult>& grains, const Plan& plan);

}  // namespace motley
