#pragma once
// What devices and the maxima of a step cost, for bounds (planner/grid/grid_bounds.h): Lagrange
// multipliers, which rows of stages are told what they would have to keep to. Each moves by how far
// the cheapest row misses that (subgradients, with Polyak's steps).

#include <array>
#include <vector>

#include "planner/grid/grid_tables.h"

namespace motley {

/// What a row of stages pays for beside its path.
struct GridPrices {
  std::vector<double> devices;  ///< seconds, by resource
  /// By maximum and type of device: a stage pays so many times what it has of the maximum, for each
  /// of its devices. None: 0.
  std::array<std::vector<double>, 3> maxima;
};

/// Devices for nothing, and as if none were ever idle: types are worth what they are quick.
GridPrices first_prices(const GridTables& tables);

/// About the same for plans with these maxima, with devices alone.
GridPrices of_devices_alone(const GridPrices& prices, const GridMaxima& maxima);

/// Of how often a maximum counts, what all devices pay for.
double times_paid(const GridTables& tables, const GridPrices& prices, size_t maximum);

/// Of each resource more than there is; negative: left.
std::vector<int> missing_of(const GridTables& tables, const std::vector<GridStage>& stages);

/// Where a bound of the plans between two maxima is to go from.
struct GridMove {
  const std::vector<GridStage>& stages;  ///< the cheapest row by the prices until now
  const GridMaxima& least;
  const GridMaxima& most;
  double seconds = 0;  ///< that the bound should rise by, were it straight
};

/// False: no other prices say more.
bool move_prices(const GridTables& tables, const GridMove& move, GridPrices* prices);

}  // namespace motley
