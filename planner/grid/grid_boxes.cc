#include "planner/grid/grid_boxes.h"

#include <algorithm>
#include <cmath>

#include "planner/grid/grid_bounds.h"
#include "planner/grid/grid_labels.h"
#include "planner/plain/grain_table.h"

namespace motley {
namespace {

/// How often prices are tried of one box: of maxima too, then of devices alone (less often where
/// the box is wide and will be halved), then again where stages are told apart by how far they are
/// from the end.
constexpr int kPricesOfMaxima = 6, kPrices = 8, kPricesOfWide = 3, kPricesAgain = 4;
/// As far are they told apart before that.
constexpr int kFewDistances = 2;
/// Labels that begin with the same layer, and states of GridReach, until which these are the less.
constexpr size_t kFewLabels = 16;
constexpr int64_t kManyStates = 20'000;
/// Boxes after which it shows whether labels are enough.
constexpr int kSearchedAtLeast = 8;
/// A state of GridReach costs so much less than one of GridBounds, a pair of labels so much more.
constexpr int kReachIsCheaper = 4, kLabelsCostMore = 2;
/// What sums in another order may differ by.
constexpr double kRounding = 1e-12;

bool later(const GridBox& a, const GridBox& b) { return a.least_seconds > b.least_seconds; }

/// What any stage is busy with sending.
double most_sent(const GridTables& tables) {
  double seconds = 0, often = 0;
  for (int layer = 0; layer < tables.layers(); ++layer)
    for (int from = 0; from < tables.configs(); ++from)
      for (int to = 0; to < tables.configs(); ++to) {
        const double send = tables.send(layer, from, to);
        if (send < kNoGridSeconds) seconds = std::max(seconds, send);
      }
  for (int from_end = 1; from_end <= tables.layers(); ++from_end)
    for (const bool first : {false, true}) {
      const SendWeights weights = tables.weights(from_end, first);
      often = std::max(often, weights.in_busy + weights.out_busy);
    }
  return seconds * often;
}

class Boxes {
 public:
  Boxes(const GridCosts& costs, const GridTables& tables, const GridEffort& effort, GridBest* best,
        GridWork* work)
      : costs_(costs),
        tables_(tables),
        counts_(tables.counts()),
        effort_(effort),
        best_(best),
        work_(work) {}

  std::vector<GridBox> run(std::vector<GridBox> open) {
    std::make_heap(open.begin(), open.end(), later);
    std::vector<GridBox> left;
    while (!open.empty() && open.front().least_seconds < cutoff()) {
      std::pop_heap(open.begin(), open.end(), later);
      GridBox box = std::move(open.back());
      open.pop_back();
      if (work_->over() || hopeless()) {
        left.push_back(std::move(box));
        continue;
      }
      for (GridBox& part : look_at(std::move(box), &left)) {
        open.push_back(std::move(part));
        std::push_heap(open.begin(), open.end(), later);
      }
    }
    std::erase_if(left, [&](const GridBox& box) { return !(box.least_seconds < cutoff()); });
    return left;
  }

 private:
  bool hopeless() const {
    return effort_.may_stop && searched_ >= kSearchedAtLeast && 2 * given_up_ > searched_;
  }

  double cutoff() const { return best_->seconds * (1 - kRounding); }

  /// The parts to look at in turn; what is given up for now goes to `left`.
  std::vector<GridBox> look_at(GridBox box, std::vector<GridBox>* left) {
    const bool bounded = box.distances >= effort_.distances;
    if (!bounded) bound_roughly(&box);
    if (!(box.least_seconds < cutoff())) return {};
    if (wide(box)) return halves(box);
    const GridWindows windows(tables_, box.most, effort_.distances);
    GridBounds bounds(tables_, windows);
    if (!bounded) bound(kPricesAgain, &bounds, &box);
    if (!(box.least_seconds < cutoff())) return {};
    box.distances = effort_.distances;
    bounds.find({box.of_devices, {}}, box.least);
    box.least_seconds = std::max(box.least_seconds, search(box, windows, bounds));
    ++searched_;
    if (!(box.least_seconds < cutoff())) return {};
    ++given_up_;
    left->push_back(std::move(box));
    return {};
  }

  /// Least seconds of the box's plans, by labels: first by few without GridReach, where that takes
  /// longer than most of what it spares.
  double search(const GridBox& box, const GridWindows& windows, const GridBounds& bounds) {
    const int64_t states = GridReach::states_of(tables_, windows);
    if (effort_.most_labels > kFewLabels && states > kManyStates && states <= effort_.most_states) {
      const double least =
          search_with(GridReach(tables_, windows, 0), kFewLabels, box, windows, bounds);
      if (!(least < cutoff())) return least;
    }
    const GridReach reach(tables_, windows, effort_.most_states);
    work_->spent += reach.states() * tables_.configs() / kReachIsCheaper;
    return search_with(reach, effort_.most_labels, box, windows, bounds);
  }

  double search_with(const GridReach& reach, size_t most_labels, const GridBox& box,
                     const GridWindows& windows, const GridBounds& bounds) {
    if (reach.before(0, reach.all()) < tables_.layers()) return kNever;
    const GridFound found =
        best_grid({tables_, windows, reach, bounds}, box.least, cutoff(), most_labels);
    work_->spent += kLabelsCostMore * (found.compared + found.labels);
    if (found.plan) offer(*found.plan);
    return found.least_seconds;
  }

  void bound_roughly(GridBox* box) {
    const GridWindows windows(tables_, box->most, kFewDistances);
    GridBounds bounds(tables_, windows);
    bound_with_maxima(&bounds, box);
    if (box->least_seconds < cutoff()) bound(wide(*box) ? kPricesOfWide : kPrices, &bounds, box);
  }

  double width(const GridBox& box, size_t i) const {
    return counts_[i] == 0 ? 0 : counts_[i] * (box.most[i] - box.least[i]);
  }
  size_t widest_of(const GridBox& box) const {
    size_t widest = 0;
    for (const size_t i : {1u, 2u})
      if (width(box, i) > width(box, widest)) widest = i;
    return widest;
  }
  bool wide(const GridBox& box) const {
    return width(box, widest_of(box)) > effort_.width * box.least_seconds;
  }

  std::vector<GridBox> halves(const GridBox& box) const {
    const size_t i = widest_of(box);
    GridBox lower = box, upper = box;
    lower.distances = upper.distances = 0;
    lower.most[i] = upper.least[i] = box.least[i] + (box.most[i] - box.least[i]) / 2;
    upper.least_seconds = std::max(upper.least_seconds, of_maxima(upper.least) + upper.least_path);
    return {std::move(lower), std::move(upper)};
  }

  double of_maxima(const GridMaxima& maxima) const {
    return counts_[0] * maxima[0] + counts_[1] * maxima[1] + counts_[2] * maxima[2];
  }

  double try_prices(const GridPrices& prices, const GridBox& box, GridBounds* bounds) {
    bounds->find(prices, box.least);
    work_->spent += bounds->states() * tables_.configs();
    return of_maxima(box.least) + bounds->path();
  }

  /// Seconds by the best of so many prices, each moved from the last as far as, were the bound
  /// straight, it took to reach the cutoff.
  double find_prices(const GridBox& box, int tries, GridBounds* bounds, GridPrices* prices) {
    GridPrices moved = *prices;
    double most = -kNever, stride = 1;
    for (int i = 0; i < tries; ++i) {
      const double seconds = try_prices(moved, box, bounds);
      if (seconds > most) {
        most = seconds;
        *prices = moved;
      } else {
        stride /= 2;
      }
      if (!(most < cutoff())) break;
      const std::vector<GridStage> stages = bounds->cheapest();
      offer_if_possible(stages);
      const double missing =
          best_->seconds < kNoGridSeconds ? best_->seconds - seconds : 2 * seconds;
      if (!move_prices(tables_, {stages, box.least, box.most, stride * missing}, &moved)) break;
    }
    return most;
  }

  /// Whatever the maxima are between the least and the most: as if stages had so much of each in
  /// the mean.
  void bound_with_maxima(GridBounds* bounds, GridBox* box) {
    if (box->prices.devices.empty()) box->prices = first_prices(tables_);
    const double most = find_prices(*box, kPricesOfMaxima, bounds, &box->prices);
    box->least_seconds = std::max(box->least_seconds, most);
    for (size_t i = 0; i < counts_.size(); ++i)
      narrow(i, best_->seconds - most, counts_[i] - times_paid(tables_, box->prices, i), box);
  }

  /// As if all had the least of the maxima; for labels.
  void bound(int tries, GridBounds* bounds, GridBox* box) {
    GridPrices prices = of_devices_alone(box->prices, box->least);
    const GridPrices before{box->of_devices, {}};
    if (!before.devices.empty() &&
        try_prices(before, *box, bounds) > try_prices(prices, *box, bounds))
      prices = before;
    const double fixed = of_maxima(box->least);
    const double most = find_prices(*box, tries, bounds, &prices);
    box->of_devices = prices.devices;
    box->least_path = std::max(box->least_path, most - fixed);
    box->least_seconds = std::max(box->least_seconds, fixed + box->least_path);
    for (size_t i = 0; i < counts_.size(); ++i)
      narrow(i, best_->seconds - fixed - box->least_path, counts_[i], box);
  }

  /// A maximum that counts so often with so many seconds left until the best plan.
  void narrow(size_t i, double seconds, double counts, GridBox* box) const {
    if (counts > 0 && seconds > 0)
      box->most[i] = std::min(box->most[i], box->least[i] + seconds / counts);
  }

  void offer_if_possible(const std::vector<GridStage>& stages) {
    const std::vector<int> missing = missing_of(tables_, stages);
    if (std::all_of(missing.begin(), missing.end(), [](int of) { return of <= 0; }) &&
        fits_memory(stages))
      offer({tables_.shape().micro_batch, tables_.shape().replicas, stages});
  }

  bool fits_memory(const std::vector<GridStage>& stages) const {
    const int passes = tables_.passes(), count = static_cast<int>(stages.size());
    for (int s = 0; s < count; ++s)
      if (costs_.farthest_from_end(stages[static_cast<size_t>(s)], tables_.shape().micro_batch,
                                   passes) < count - s)
        return false;
    return true;
  }

  void offer(GridPlan plan) {
    const double seconds = costs_.step_seconds(plan);
    if (seconds >= best_->seconds) return;
    best_->seconds = seconds;
    best_->plan = std::move(plan);
  }

  const GridCosts& costs_;
  const GridTables& tables_;
  const GridMaxima counts_;
  const GridEffort effort_;
  GridBest* const best_;
  GridWork* const work_;
  int searched_ = 0, given_up_ = 0;  ///< boxes, label by label
};

}  // namespace

GridBox whole_box(const GridTables& tables, double least_seconds, double least_busy) {
  GridBox box;
  box.least_seconds = least_seconds;
  box.least = {least_busy, kNever, kNever};
  for (int config = 0; config < tables.configs(); ++config)
    for (int first = 0; first < tables.layers(); ++first)
      for (int end = first + 1; end <= tables.layers(); ++end) {
        if (tables.farthest_from_end(config, first, end) < 1) break;
        const GridMaxima& maxima = tables.maxima(config, first, end);
        if (std::max({maxima[0], maxima[1], maxima[2]}) >= kNoGridSeconds) continue;
        for (size_t i = 0; i < maxima.size(); ++i) {
          if (i > 0) box.least[i] = std::min(box.least[i], maxima[i]);
          box.most[i] = std::max(box.most[i], maxima[i]);
        }
      }
  box.most[0] += most_sent(tables);  // beyond the least, which is all that its maxima know of
  if (box.least[1] == kNever) box.least_seconds = kNever;  // no stage at all
  return box;
}

void search_boxes(const GridCosts& costs, const GridTables& tables, const GridEffort& effort,
                  std::vector<GridBox>* boxes, GridBest* best, GridWork* work) {
  *boxes = Boxes(costs, tables, effort, best, work).run(std::move(*boxes));
}

}  // namespace motley
