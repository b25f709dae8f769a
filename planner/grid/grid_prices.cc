#include "planner/grid/grid_prices.h"

#include <algorithm>

namespace motley {
namespace {

/// How far a row misses what each price is to make it keep to; prices at 0 fall no further.
struct Misses {
  std::vector<int> of_devices;
  std::array<std::vector<double>, 3> of_maxima;  ///< as parts of the most
  double squares = 0;

  void count(double miss, double price) {
    if (miss > 0 || price > 0) squares += miss * miss;
  }
};

double value_of(const GridTables& tables, const GridStage& stage, size_t maximum) {
  int config = 0;
  while (tables.config(config) != stage.config) ++config;
  return tables.least_part(maximum, config, stage.first, stage.end);
}

Misses misses_of(const GridTables& tables, const GridMove& move, const GridPrices& prices) {
  Misses misses;
  misses.of_devices = missing_of(tables, move.stages);
  for (size_t r = 0; r < misses.of_devices.size(); ++r)
    misses.count(misses.of_devices[r], prices.devices[r]);
  for (size_t i = 0; i < move.most.size(); ++i) {
    if (prices.maxima[i].empty() || tables.counts()[i] == 0 || move.most[i] <= 0) continue;
    std::vector<double>& late = misses.of_maxima[i];
    for (const int there : tables.budget()) late.push_back(-there * move.least[i] / move.most[i]);
    for (const GridStage& stage : move.stages)
      late[static_cast<size_t>(stage.config.type)] +=
          stage.config.degree * value_of(tables, stage, i) / move.most[i];
    for (size_t type = 0; type < late.size(); ++type)
      misses.count(late[type], prices.maxima[i][type]);
  }
  return misses;
}

/// More cannot be paid for than counts.
void pay_at_most(const GridTables& tables, size_t maximum, GridPrices* prices) {
  const double paid = times_paid(tables, *prices, maximum), most = tables.counts()[maximum];
  if (paid > most)
    for (double& price : prices->maxima[maximum]) price *= most / paid;
}

}  // namespace

GridPrices first_prices(const GridTables& tables) {
  GridPrices prices;
  prices.devices.assign(tables.resources().size(), 0);
  for (std::vector<double>& of : prices.maxima) of.assign(tables.budget().size(), 0);
  for (int config = 0; config < tables.configs(); ++config) {
    const GridConfig own = tables.config(config);
    const double all = tables.compute(config, 0, tables.layers()) * own.degree;
    double& speed = prices.maxima[0][static_cast<size_t>(own.type)];
    if (all > 0) speed = std::max(speed, 1 / all);
  }
  const double speeds = times_paid(tables, prices, 0);
  for (double& speed : prices.maxima[0]) speed *= speeds > 0 ? tables.counts()[0] / speeds : 0;
  return prices;
}

GridPrices of_devices_alone(const GridPrices& prices, const GridMaxima& maxima) {
  GridPrices alone{prices.devices, {}};
  for (size_t i = 0; i < maxima.size(); ++i)
    for (size_t type = 0; type < prices.maxima[i].size(); ++type)
      alone.devices[type] += prices.maxima[i][type] * maxima[i];
  return alone;
}

double times_paid(const GridTables& tables, const GridPrices& prices, size_t maximum) {
  double paid = 0;
  for (size_t type = 0; type < prices.maxima[maximum].size(); ++type)
    paid += prices.maxima[maximum][type] * tables.budget()[type];
  return paid;
}

std::vector<int> missing_of(const GridTables& tables, const std::vector<GridStage>& stages) {
  std::vector<int> missing;
  for (const GridTables::Resource& resource : tables.resources()) {
    missing.push_back(-resource.there);
    for (const GridStage& stage : stages) missing.back() += resource.taken_by(stage.config);
  }
  return missing;
}

bool move_prices(const GridTables& tables, const GridMove& move, GridPrices* prices) {
  const Misses misses = misses_of(tables, move, *prices);
  if (misses.squares == 0) return false;
  const double step = move.seconds / misses.squares;
  for (size_t r = 0; r < misses.of_devices.size(); ++r)
    prices->devices[r] = std::max(0.0, prices->devices[r] + step * misses.of_devices[r]);
  for (size_t i = 0; i < move.most.size(); ++i) {
    std::vector<double>& of = prices->maxima[i];
    for (size_t type = 0; type < misses.of_maxima[i].size(); ++type)
      of[type] = std::max(0.0, of[type] + step * misses.of_maxima[i][type] / move.most[i]);
    pay_at_most(tables, i, prices);
  }
  return true;
}

}  // namespace motley
