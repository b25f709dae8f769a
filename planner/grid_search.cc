#include "planner/grid_search.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "planner/grain_table.h"
#include "planner/grid_labels.h"

namespace motley {
namespace {

/// Labels of each first layer that are gone on with: for a plan to begin with, and to prove one.
constexpr size_t kFewLabels = 8;
constexpr size_t kManyLabels = 20'000;

struct Candidate {
  GridShape shape;
  double least_seconds = 0;
};

/// For each number of passes only the fewest replicas: more devices a replica, less to sum.
std::vector<GridShape> shapes_of(const GridCosts& costs, int devices) {
  std::vector<GridShape> shapes;
  for (const int micro_batch : costs.micro_batches()) {
    int before = 0;
    for (int replicas = 1; replicas <= devices; ++replicas) {
      const int passes = costs.passes(micro_batch, replicas);
      if (passes != before) shapes.push_back({micro_batch, replicas});
      before = passes;
    }
  }
  return shapes;
}

class GridSearch {
 public:
  GridSearch(const GridCosts& costs, const std::vector<int>& devices)
      : costs_(costs), devices_(devices) {}

  Result<GridResult> run() {
    std::vector<Candidate> open;
    for (const GridShape shape :
         shapes_of(costs_, std::accumulate(devices_.begin(), devices_.end(), 0)))
      open.push_back({shape, fluid_seconds(shape)});
    look_at(&open, kFewLabels);
    look_at(&open, kManyLabels);
    if (!best_)
      return fail(ErrorCode::kNoPlan,
                  "no pipeline of equal replicas over these devices holds the model");
    GridResult result{*best_, record_};
    result.search.step_seconds = seconds_;
    result.search.least_seconds = seconds_;
    for (const Candidate& left : open)
      result.search.least_seconds = std::min(result.search.least_seconds, left.least_seconds);
    return result;
  }

 private:
  /// Every device all the time on the layers it is best at, in proportion to the speed of types;
  /// and each layer once where it is quickest.
  double fluid_seconds(GridShape shape) const {
    const int layers = costs_.layers();
    std::vector<double> of_devices(static_cast<size_t>(layers), kNever);  // weighted
    std::vector<double> quickest = of_devices;
    double speeds = 0;
    for (int type = 0; type < costs_.types(); ++type) {
      const int there = devices_[static_cast<size_t>(type)] / shape.replicas;
      double least = kNever;  // device-seconds for all layers
      for (const int degree : costs_.degrees(type, shape.micro_batch)) {
        if (degree > there) continue;
        double all = 0;
        for (int layer = 0; layer < layers; ++layer)
          all += costs_.compute({type, degree}, shape.micro_batch, layer);
        least = std::min(least, all * degree);
      }
      if (least == kNever) continue;
      speeds += there / least;
      for (const int degree : costs_.degrees(type, shape.micro_batch)) {
        if (degree > there) continue;
        for (int layer = 0; layer < layers; ++layer) {
          const auto at = static_cast<size_t>(layer);
          const double seconds = costs_.compute({type, degree}, shape.micro_batch, layer);
          of_devices[at] = std::min(of_devices[at], seconds * degree / least);
          quickest[at] = std::min(quickest[at], seconds);
        }
      }
    }
    if (speeds == 0) return kNever;
    const double busiest = std::accumulate(of_devices.begin(), of_devices.end(), 0.0) / speeds;
    return (costs_.passes(shape.micro_batch, shape.replicas) - 1) * busiest +
           std::accumulate(quickest.begin(), quickest.end(), 0.0);
  }

  /// Leaves those of which a quicker plan may still exist, with what bounds it.
  void look_at(std::vector<Candidate>* open, size_t most_labels) {
    std::stable_sort(open->begin(), open->end(), [](const Candidate& a, const Candidate& b) {
      return a.least_seconds < b.least_seconds;
    });
    std::vector<Candidate> left;
    for (const Candidate& candidate : *open) {
      if (!(candidate.least_seconds < seconds_)) break;
      const GridTables tables(costs_, candidate.shape, devices_);
      const GridBounds bounds(tables, seconds_);
      const double least = std::max(candidate.least_seconds, bounds.least_seconds());
      if (!(least < seconds_)) continue;
      GridFound found = best_grid(tables, bounds, seconds_, most_labels);
      record_.labels += found.labels;
      if (most_labels == kManyLabels) ++record_.shapes;
      if (found.plan) {
        best_ = std::move(found.plan);
        seconds_ = found.seconds;
      }
      if (found.least_seconds < seconds_)
        left.push_back({candidate.shape, std::max(least, found.least_seconds)});
    }
    *open = std::move(left);
  }

  const GridCosts& costs_;
  const std::vector<int>& devices_;
  std::optional<GridPlan> best_;
  double seconds_ = kNever;
  GridRecord record_;
};

}  // namespace

Result<GridResult> search_grid(const GridCosts& costs, const std::vector<int>& devices) {
  if (costs.types() > kMostGridTypes)
    return fail(ErrorCode::kUnsupported, "devices of more than " + std::to_string(kMostGridTypes) +
                                             " types in equal pipelines");
  return GridSearch(costs, devices).run();
}

std::string grid_space(const GridCosts& costs, const std::vector<int>& devices) {
  const std::vector<int> sizes = costs.micro_batches();
  return "equal pipelines of " +
         std::to_string(std::accumulate(devices.begin(), devices.end(), 0)) + " devices of " +
         std::to_string(costs.types()) +
         " types: any number of replicas and of stages, any layers, one type and tensor degree a "
         "stage, types in any order, micro-batches of " +
         std::to_string(sizes.front()) + " to " + std::to_string(sizes.back()) +
         ", devices left out";
}

}  // namespace motley
