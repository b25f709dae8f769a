#pragma once
// Little by little: what of a plan that is cut may be changed (planner/pipelines/refine_cuts.h).

#include <functional>
#include <vector>

#include "core/plan.h"
#include "planner/request.h"

namespace motley {

/// False where it cannot be made, and the plan is spoilt. Owners and prediction are those of
/// before.
using CutChange = std::function<bool(Plan*)>;

/// So few that more is tried than moving ends of stages.
bool has_few_ranks(const Plan& plan);

enum class CutChanges {
  kInPlace,  ///< none that moves stages to other places or gives one up
  kAll
};

/// All that refine_cuts() tries of this plan, in a fixed order.
std::vector<CutChange> changes_of(const PlanRequest& request, const Plan& plan, CutChanges which);

}  // namespace motley
