#include "planner/grid/grid_labels.h"

#include <algorithm>

namespace motley {
namespace {

constexpr int kNone = -1;

/// Stages from one on to the last.
struct Label {
  int first = 0;  ///< layer of the first stage
  int end = 0;    ///< of it
  int config = 0;
  int stages = 1;
  int after = kNone;  ///< the label that begins with the next stage
  std::array<int, kMostGridResources> used = {};
  int64_t left = 0;     ///< devices, as GridBounds counts them
  double busiest = 0;   ///< of all stages; of the first with the least it may take to send
  double own_busy = 0;  ///< of the first, without what comes into it
  double path = 0;      ///< of all, without what comes into the first
  double update = 0;
  double reduction = 0;
  SendWeights weights;  ///< of the first, where it is not the first of all

  bool no_worse_than(const Label& other) const {
    if (busiest > other.busiest || path > other.path || own_busy > other.own_busy ||
        reduction > other.reduction || update > other.update || stages > other.stages ||
        weights.in_busy > other.weights.in_busy || weights.in_path > other.weights.in_path)
      return false;
    for (size_t resource = 0; resource < kMostGridResources; ++resource)
      if (used[resource] > other.used[resource]) return false;
    return true;
  }
};

class GridLabels {
 public:
  GridLabels(const GridTables& tables, const GridBounds& bounds, double cutoff, size_t most_labels,
             int64_t most_compared)
      : tables_(tables),
        bounds_(bounds),
        cutoff_(cutoff),
        most_labels_(most_labels),
        most_compared_(most_compared),
        starting_(static_cast<size_t>(tables.layers() + 1) *
                  static_cast<size_t>(tables.configs())) {}

  GridFound run() {
    Label none;
    none.stages = 0;
    none.left = bounds_.all();
    none.first = tables_.layers();
    extend(none, kNone);
    for (int first = tables_.layers() - 1; first > 0; --first)
      for (const int number : to_go_on_with(first)) {
        const Label label = labels_[static_cast<size_t>(number)];
        extend(label, number);
      }
    found_.labels = static_cast<int64_t>(labels_.size());
    return std::move(found_);
  }

 private:
  std::vector<int>& starting(int first, int config) {
    return starting_[static_cast<size_t>(first * tables_.configs() + config)];
  }

  /// Seconds of any plan that ends with these stages, at least.
  double bound(const Label& label) const {
    return (tables_.passes() - 1) * label.busiest + label.path +
           label.weights.in_path * tables_.least_send(label.first, label.config) +
           bounds_.path(label.first, label.left) + label.update + label.reduction;
  }

  std::vector<int> to_go_on_with(int first) {
    std::vector<std::pair<double, int>> by_bound;
    for (int config = 0; config < tables_.configs(); ++config)
      for (const int number : starting(first, config)) {
        const double least = bound(labels_[static_cast<size_t>(number)]);
        if (least < cutoff_) by_bound.push_back({least, number});
      }
    std::sort(by_bound.begin(), by_bound.end());
    const size_t most =
        found_.compared < most_compared_ ? most_labels_ : std::min(most_labels_, kFewGridLabels);
    if (by_bound.size() > most) {
      found_.least_seconds = std::min(found_.least_seconds, by_bound[most].first);
      by_bound.resize(most);
    }
    std::vector<int> numbers;
    for (const auto& [least, number] : by_bound) numbers.push_back(number);
    return numbers;
  }

  /// By every stage before the label's.
  void extend(const Label& label, int number) {
    for (int config = 0; config < tables_.configs(); ++config) {
      if (!has_room(label, tables_.config(config))) continue;
      for (int first = label.first - 1; first >= 0; --first) {
        if (tables_.farthest_from_end(config, first, label.first) <= label.stages) break;
        if (!bounds_.allowed(config, first, label.first)) continue;
        Label longer = label;
        put_before(config, first, number, &longer);
        if (first == 0)
          finish(longer);
        else
          add(longer);
      }
    }
  }

  bool has_room(const Label& label, GridConfig config) const {
    const std::vector<GridTables::Resource>& resources = tables_.resources();
    for (size_t i = 0; i < resources.size(); ++i)
      if (label.used[i] + resources[i].taken_by(config) > resources[i].there) return false;
    return true;
  }

  void put_before(int config, int first, int number, Label* label) const {
    const GridConfig own = tables_.config(config);
    const int end = label->first;
    const SendWeights weight = tables_.weights(label->stages + 1, first == 0);
    const double computing = tables_.compute(config, first, end);
    double path = label->path + computing, own_busy = computing;
    if (label->stages > 0) {
      const SendWeights after = label->weights;
      const double in = tables_.send(end, label->config, config);
      label->busiest = std::max(label->busiest, label->own_busy + after.in_busy * in);
      const double out = tables_.send(end - 1, config, label->config);
      path += after.in_path * in + weight.out_path * out;
      own_busy += weight.out_busy * out;
    }
    label->path = path;
    label->own_busy = own_busy;
    label->update =
        std::max({label->update, tables_.update(config, first, end), bounds_.least_update()});
    label->reduction = std::max(label->reduction, tables_.reduction(config, first, end));
    for (size_t i = 0; i < tables_.resources().size(); ++i)
      label->used[i] += tables_.resources()[i].taken_by(own);
    label->left -= own.degree * bounds_.stride(own.type);
    label->first = first;
    label->end = end;
    label->config = config;
    label->stages += 1;
    label->weights = tables_.weights(label->stages, false);
    label->after = number;
  }

  /// What any completion brings about is put in at once: labels that differ in nothing else are
  /// then alike.
  void raise(Label* label) const {
    const double in = label->weights.in_busy;
    label->busiest =
        std::max({label->busiest, bounds_.busiest(label->first, label->left),
                  label->own_busy + in * tables_.least_send(label->first, label->config)});
    label->own_busy = std::max(
        label->own_busy, label->busiest - in * tables_.most_send(label->first, label->config));
    label->reduction = std::max(label->reduction, bounds_.reduction(label->first, label->left));
  }

  void add(Label label) {
    raise(&label);
    if (!(bound(label) < cutoff_)) return;
    std::vector<int>& others = starting(label.first, label.config);
    const auto of = [&](int number) -> const Label& {
      return labels_[static_cast<size_t>(number)];
    };
    found_.compared += static_cast<int64_t>(others.size());
    for (const int other : others)
      if (of(other).no_worse_than(label)) return;
    std::erase_if(others, [&](int other) { return label.no_worse_than(of(other)); });
    others.push_back(static_cast<int>(labels_.size()));
    labels_.push_back(label);
  }

  void finish(const Label& label) {
    const double seconds = (tables_.passes() - 1) * std::max(label.busiest, label.own_busy) +
                           label.path + label.update + label.reduction;
    if (!(seconds < cutoff_)) return;
    GridPlan plan{tables_.shape().micro_batch, tables_.shape().replicas, {}};
    for (const Label* stage = &label;; stage = &labels_[static_cast<size_t>(stage->after)]) {
      plan.stages.push_back({stage->first, stage->end, tables_.config(stage->config)});
      if (stage->after == kNone) break;
    }
    found_.least_seconds = std::min(found_.least_seconds, seconds);
    cutoff_ = found_.seconds = seconds;
    found_.plan = std::move(plan);
  }

  const GridTables& tables_;
  const GridBounds& bounds_;
  double cutoff_;
  size_t most_labels_;
  int64_t most_compared_;
  std::vector<Label> labels_;
  std::vector<std::vector<int>> starting_;  ///< labels that nothing dominates, by layer and config
  GridFound found_;
};

}  // namespace

GridFound best_grid(const GridTables& tables, const GridBounds& bounds, double cutoff,
                    size_t most_labels, int64_t most_compared) {
  return GridLabels(tables, bounds, cutoff, most_labels, most_compared).run();
}

}  // namespace motley
