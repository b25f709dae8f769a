#pragma once
// Planning again when devices were lost or added: from the plan there was.

#include <memory>
#include <optional>
#include <vector>

#include "planner/plain/grain_search.h"
#include "planner/plain/runners_up.h"

namespace motley {

/// Planning again ends with a plan that is proven to be no further from the best one.
inline constexpr double kEnoughAgain = 0.01;

/// The quickest deal over all grains, and how it was found.
struct FoundDeal {
  Deal deal;
  std::unique_ptr<GrainSearch> search;  ///< of its grain; null: there is no deal
  std::vector<GrainResult> tried;
  SearchRecord record;
};

/// The grains of request.previous dealt anew to those of its devices that are left, with others for
/// those lost where these shorten the step; another deal where that is too far from the bound.
/// Nothing without such a plan, where it is of no use here (replicas are cut, another batch), or
/// where nothing that is surely good enough was found.
std::optional<FoundDeal> deal_again(const PlanRequest& request, const Candidates& candidates,
                                    const ReductionTable& reduction);

}  // namespace motley
