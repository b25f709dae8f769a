#include "planner/grid/grid_search.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "planner/grid/grid_boxes.h"
#include "planner/grid/grid_labels.h"
#include "planner/grid/mixed_search.h"
#include "planner/plain/grain_table.h"

namespace motley {
namespace {

/// What is done with each shape, in turn: to tell where to look first, for a plan to begin with, to
/// prove one.
constexpr GridEffort kEfforts[] = {
    {.width = 1e9, .distances = 8, .most_states = 20'000, .most_labels = 8},
    {.width = 0.1, .distances = 8, .most_states = 50'000, .most_labels = 16},
    {.width = 0.05, .distances = 8, .most_states = 50'000, .most_labels = 64, .may_stop = true},
    {.width = 0.02, .distances = 16, .most_states = 2'000'000, .most_labels = 100},
    {.width = 0.01, .distances = 16, .most_states = 2'000'000, .most_labels = 300},
    {.width = 0.004, .distances = 32, .most_states = 2'000'000, .most_labels = 1000},
    {.width = 0.001, .distances = 1 << 14, .most_states = 2'000'000, .most_labels = 20'000}};
/// Over all shapes, by devices: some seconds for a thousand.
constexpr int64_t kLeastWork = 500'000'000;
constexpr int64_t kWorkOfADevice = 1'500'000;

struct GridCandidate {
  GridShape shape;
  double busiest = 0;  ///< seconds, at least
  double least_seconds = 0;
  std::vector<GridBox> boxes = {};  ///< none: all plans
};

int64_t device_count(const std::vector<GridGroups>& fleet) {
  int64_t count = 0;
  for (const GridGroups& groups : fleet) count += groups.empty() ? 0 : groups.at(1);
  return count;
}

/// For each number of passes the fewest replicas, which leave each the most devices; more of them
/// only where to sum over more may take less.
std::vector<GridShape> shapes_of(const GridCosts& costs, int64_t devices) {
  std::vector<GridShape> shapes;
  const bool fewest = costs.reductions_rise();
  for (const int micro_batch : costs.micro_batches()) {
    int before = 0;
    const int64_t most =  // each has a micro-batch at least
        std::min<int64_t>(devices, (costs.global_batch() + micro_batch - 1) / micro_batch);
    for (int replicas = 1; replicas <= most; ++replicas) {
      const int passes = costs.passes(micro_batch, replicas);
      if (passes != before || !fewest) shapes.push_back({micro_batch, replicas});
      before = passes;
    }
  }
  return shapes;
}

class GridSearch {
 public:
  GridSearch(const GridCosts& costs, const std::vector<GridGroups>& fleet)
      : costs_(costs), fleet_(fleet) {}

  Result<GridResult> run() {
    const int64_t devices = device_count(fleet_);
    work_.most = kLeastWork + kWorkOfADevice * devices;
    std::vector<GridCandidate> open;
    const std::vector<GridShape> shapes = shapes_of(costs_, devices);
    for (const GridShape shape : shapes) open.push_back(fluid(shape));
    for (const GridEffort& effort : kEfforts) look_at(&open, effort);
    const double alike = best_.plan ? best_.seconds : 0;
    const MixedRecord mixed = search_mixed(costs_, shapes, fleet_, &best_);
    if (!best_.plan)
      return fail(ErrorCode::kNoPlan,
                  "no pipeline of equal replicas over these devices holds the model");
    GridResult result{*best_.plan,
                      {best_.seconds, best_.seconds, work_.spent + mixed.nodes, alike}};
    double& least = result.search.least_seconds;
    for (const GridCandidate& left : open) least = std::min(least, left.least_seconds);
    result.search.unlike_too = mixed.least_seconds > 0;
    if (result.search.unlike_too) least = std::min(least, mixed.least_seconds);
    return result;
  }

 private:
  /// Every device all the time on the layers it is best at, in proportion to the speed of types;
  /// and each layer once where it is quickest.
  GridCandidate fluid(GridShape shape) const {
    const int layers = costs_.layers();
    std::vector<double> of_devices(static_cast<size_t>(layers), kNever);  // weighted
    std::vector<double> quickest = of_devices;
    double speeds = 0;
    for (int type = 0; type < costs_.types(); ++type) {
      const GridGroups& groups = fleet_[static_cast<size_t>(type)];
      const int there = groups.empty() ? 0 : groups.at(1) / shape.replicas;
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
    if (speeds == 0) return {shape, kNever, kNever};
    const double busiest = std::accumulate(of_devices.begin(), of_devices.end(), 0.0) / speeds;
    return {shape, busiest,
            (costs_.passes(shape.micro_batch, shape.replicas) - 1) * busiest +
                std::accumulate(quickest.begin(), quickest.end(), 0.0)};
  }

  /// Leaves those of which a quicker plan may still exist, with what bounds it.
  void look_at(std::vector<GridCandidate>* open, const GridEffort& effort) {
    std::stable_sort(open->begin(), open->end(),
                     [](const GridCandidate& a, const GridCandidate& b) {
                       return a.least_seconds < b.least_seconds;
                     });
    std::vector<GridCandidate> left;
    for (GridCandidate& candidate : *open) {
      if (!(candidate.least_seconds < best_.seconds)) break;
      if (work_.over()) {
        left.push_back(std::move(candidate));
        continue;
      }
      const GridTables tables(costs_, candidate.shape, fleet_, best_.seconds);
      if (candidate.boxes.empty())
        candidate.boxes = {whole_box(tables, candidate.least_seconds, candidate.busiest)};
      search_boxes(costs_, tables, effort, &candidate.boxes, &best_, &work_);
      if (candidate.boxes.empty()) continue;
      candidate.least_seconds = best_.seconds;
      for (const GridBox& box : candidate.boxes)
        candidate.least_seconds = std::min(candidate.least_seconds, box.least_seconds);
      left.push_back(std::move(candidate));
    }
    *open = std::move(left);
  }

  const GridCosts& costs_;
  const std::vector<GridGroups>& fleet_;
  GridBest best_;
  GridWork work_;
};

}  // namespace

Result<GridResult> search_grid(const GridCosts& costs, const std::vector<GridGroups>& fleet) {
  size_t resources = fleet.size();
  for (const GridGroups& groups : fleet) resources += groups.empty() ? 0 : groups.size() - 1;
  if (resources > kMostGridResources)
    return fail(ErrorCode::kUnsupported,
                "more than " + std::to_string(kMostGridResources) +
                    " types of devices and tensor degrees of them in equal pipelines");
  return GridSearch(costs, fleet).run();
}

std::string grid_space(const GridCosts& costs, const std::vector<GridGroups>& fleet,
                       const GridRecord& search) {
  const std::vector<int> sizes = costs.micro_batches();
  return "equal pipelines of " + std::to_string(device_count(fleet)) + " devices of " +
         std::to_string(costs.types()) +
         " types: any number of replicas and of stages, any layers, " +
         (search.unlike_too ? "any type and tensor degree in each stage of each replica"
                            : "one type and tensor degree a stage") +
         ", degrees that divide each other within hosts, types in any order, micro-batches of " +
         std::to_string(sizes.front()) + " to " + std::to_string(sizes.back()) +
         ", devices left out" +
         (search.unlike_too ? "" : "; some of those with unlike replicas besides");
}

}  // namespace motley
