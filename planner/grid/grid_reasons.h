#pragma once
// Why there is no grid by a foreign profile, or none with some of the devices: asked for once a
// search has ended or a plan was given, for people.

#include <string>
#include <vector>

#include "planner/grid/foreign_costs.h"

namespace motley {

/// Once search_grid() has found no plan: in one line whether times, memory, a link or a micro-batch
/// that types share is what is missing, and how much of it.
std::string why_no_grid(const ForeignCosts& costs);

/// What a plan sends that the profile has no link for; empty: nothing.
std::string lacking_link(const GridPlan& plan, const ForeignCosts& costs);

/// Why the devices of a stage of a plan do not hold it; empty: they do.
std::string lacking_memory(const GridPlan& plan, size_t stage, const ForeignCosts& costs);

/// Bytes that a device of a stage of a plan needs in a replica where it is of that config.
double bytes_of_stage(const GridPlan& plan, size_t stage, GridConfig config,
                      const ForeignCosts& costs);

/// Devices of a type that a plan has not got.
struct GridLeftOut {
  std::string type;
  int devices = 0;
  std::string why;
};

enum class GridOrigin { kGiven, kFound, kProvedBest };

std::vector<GridLeftOut> left_out_of(const GridPlan& plan, const ForeignCosts& costs,
                                     GridOrigin origin);

}  // namespace motley
