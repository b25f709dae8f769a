#pragma once
// Who owns how much of a plan, and what where that is not dealt evenly (even_ownership() of
// core/plan.h).

#include <cstdint>
#include <vector>

#include "core/plan.h"

namespace motley {

/// Elements that the same ranks hold.
struct HeldAlike {
  std::vector<Rank> holders;  ///< rising
  int64_t elements = 0;
};

/// All of the model, by who holds it; by holders. Of a plan that is valid but for its owners.
std::vector<HeldAlike> held_alike(const Plan& plan, const ModelSpec& model);

/// The same, and how much of it each of them owns.
struct OwnedAlike {
  HeldAlike held;
  std::vector<int64_t> owned;  ///< elements, by holder
};

/// even_ownership() added up, without a list of all slices; in canonical order of the first tensor
/// of each. Of a plan whose stages have a rank each.
std::vector<OwnedAlike> even_elements(const Plan& plan, const ModelSpec& model);

/// Of each holder of a group, in their order: none below 0, not all 0.
using OwnerShares = std::vector<double>;

/// As even_ownership(), but each holder owns its share of what is held alike: `shares` in the order
/// of held_alike(). Whole rows are dealt, so that it may be a row more or less.
std::vector<Ownership> uneven_ownership(const Plan& plan, const ModelSpec& model,
                                        const std::vector<OwnerShares>& shares);

}  // namespace motley
