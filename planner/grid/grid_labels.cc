#include "planner/grid/grid_labels.h"

#include <algorithm>
#include <utility>

namespace motley {
namespace {

constexpr int kNone = -1;

/// Stages from one on to the last.
struct Label {
  int first = 0;  ///< layer of the first stage
  int end = 0;    ///< of it
  int config = 0;
  int stages = 0;
  int after = kNone;  ///< the label that begins with the next stage
  std::array<int, kMostGridResources> used = {};
  int64_t left = 0;         ///< devices, as GridReach counts them
  double paid = 0;          ///< for that, by the prices of GridBounds
  GridMaxima maxima = {};   ///< of all stages; of the first with the least it may take to send
  double own_busy = 0;      ///< of the first, without what comes into it
  bool own_hidden = false;  ///< whatever comes into the first, another is busy as long
  double path = 0;          ///< of all, without what comes into the first
  SendWeights weights;      ///< of the first, where it is not the first of all

  /// Greater maxima take no more than what the path takes less. `counts`: how often each counts.
  bool no_worse_than(const Label& other, size_t resources, const GridMaxima& counts) const {
    if (path > other.path || stages > other.stages || (!own_hidden && own_busy > other.own_busy) ||
        weights.in_busy > other.weights.in_busy || weights.in_path > other.weights.in_path)
      return false;
    double seconds = path;
    for (size_t i = 0; i < maxima.size(); ++i)
      seconds += counts[i] * std::max(0.0, maxima[i] - other.maxima[i]);
    if (seconds > other.path) return false;
    for (size_t resource = 0; resource < resources; ++resource)
      if (used[resource] > other.used[resource]) return false;
    return true;
  }
};

/// Of a label what mostly says already that it does not dominate another: in one line of a cache,
/// as labels are compared far more often than made.
struct Start {
  double path = 0;
  uint64_t used = 0;  ///< of the first four resources, 16 bits each, the highest of which is free
  int stages = 0;
  int number = 0;  ///< of the label

  bool may_be_no_worse_than(const Start& other) const {
    constexpr uint64_t kFree = 0x8000'8000'8000'8000;
    return path <= other.path && (((other.used | kFree) - used) & kFree) == kFree &&
           stages <= other.stages;
  }
};

class GridLabels {
 public:
  GridLabels(const GridKnown& known, const GridMaxima& least, double cutoff, size_t most_labels)
      : tables_(known.tables),
        windows_(known.windows),
        reach_(known.reach),
        bounds_(known.bounds),
        least_(least),
        counts_(tables_.counts()),
        cutoff_(cutoff),
        most_labels_(most_labels),
        starting_(static_cast<size_t>(tables_.layers() + 1) *
                  static_cast<size_t>(tables_.configs())) {}

  GridFound run() {
    Label none;
    none.first = tables_.layers();
    none.left = reach_.all();
    none.maxima = least_;
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
  std::vector<Start>& starting(int first, int config) {
    return starting_[static_cast<size_t>(first * tables_.configs() + config)];
  }

  double seconds_of(const GridMaxima& maxima, double path) const {
    return counts_[0] * maxima[0] + counts_[1] * maxima[1] + counts_[2] * maxima[2] + path;
  }

  /// Seconds of any plan that ends with these stages, at least.
  double bound(const Label& label) const {
    return seconds_of(
        label.maxima,
        label.path + label.paid + bounds_.path_before(label.first, label.stages, label.config));
  }

  std::vector<int> to_go_on_with(int first) {
    std::vector<std::pair<double, int>> by_bound;
    for (int config = 0; config < tables_.configs(); ++config)
      for (const Start& start : starting(first, config)) {
        const double least = bound(labels_[static_cast<size_t>(start.number)]);
        if (least < cutoff_) by_bound.push_back({least, start.number});
      }
    std::sort(by_bound.begin(), by_bound.end());
    if (by_bound.size() > most_labels_) {
      found_.least_seconds = std::min(found_.least_seconds, by_bound[most_labels_].first);
      by_bound.resize(most_labels_);
    }
    std::vector<int> numbers;
    for (const auto& [least, number] : by_bound) numbers.push_back(number);
    return numbers;
  }

  /// By every stage before the label's that may be quick enough.
  void extend(const Label& label, int number) {
    for (int config = 0; config < tables_.configs(); ++config) {
      if (!has_room(label, tables_.config(config))) continue;
      const Label with = taking(config, label);
      const double seconds = seconds_of(label.maxima, label.path) + with.paid;
      const int lowest = windows_.first_of(config, label.first, label.stages + 1);
      const int highest = std::min(label.first - 1, reach_.before(label.stages + 1, with.left));
      for (int first = highest; first >= lowest; --first) {
        if (tables_.farthest_from_end(config, first, label.first) <= label.stages) break;
        if (first > 0 && !(seconds + tables_.compute(config, first, label.first) +
                               bounds_.path_before(first, label.stages + 1, config) <
                           cutoff_))
          continue;
        if (!windows_.allowed(config, first, label.first)) continue;
        Label longer = with;
        put_before(config, first, number, &longer);
        if (first == 0)
          finish(longer);
        else
          add(std::move(longer));
      }
    }
  }

  bool has_room(const Label& label, GridConfig config) const {
    const std::vector<GridTables::Resource>& resources = tables_.resources();
    for (size_t i = 0; i < resources.size(); ++i)
      if (label.used[i] + resources[i].taken_by(config) > resources[i].there) return false;
    return true;
  }

  /// With the devices of one stage more.
  Label taking(int config, Label label) const {
    const GridConfig own = tables_.config(config);
    for (size_t i = 0; i < tables_.resources().size(); ++i) {
      const int taken = tables_.resources()[i].taken_by(own);
      label.used[i] += taken;
      label.paid += taken * bounds_.prices().devices[i];
    }
    label.left -= own.degree * reach_.stride(own.type);
    return label;
  }

  void put_before(int config, int first, int number, Label* label) const {
    const int end = label->first;
    const SendWeights weight = tables_.weights(label->stages + 1, first == 0);
    const double computing = tables_.compute(config, first, end);
    double path = label->path + computing, own_busy = computing;
    if (label->stages > 0) {
      const SendWeights after = label->weights;
      const double in = tables_.send(end, label->config, config);
      label->maxima[0] = std::max(label->maxima[0], label->own_busy + after.in_busy * in);
      const double out = tables_.send(end - 1, config, label->config);
      path += after.in_path * in + weight.out_path * out;
      own_busy += weight.out_busy * out;
    }
    label->path = path;
    label->own_busy = own_busy;
    const GridMaxima& maxima = tables_.maxima(config, first, end);
    for (const size_t i : {1u, 2u}) label->maxima[i] = std::max(label->maxima[i], maxima[i]);
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
    label->maxima[0] = std::max(
        label->maxima[0], label->own_busy + in * tables_.least_send(label->first, label->config));
    const double hidden = label->maxima[0] - in * tables_.most_send(label->first, label->config);
    label->own_hidden = label->own_busy <= hidden;
    label->own_busy = std::max(label->own_busy, hidden);
  }

  void add(Label&& label) {
    raise(&label);
    if (label.maxima[0] > windows_.most()[0] || !(bound(label) < cutoff_)) return;
    std::vector<Start>& others = starting(label.first, label.config);
    const Start own = start_of(label);
    const size_t resources = tables_.resources().size();
    const auto of = [&](const Start& start) -> const Label& {
      return labels_[static_cast<size_t>(start.number)];
    };
    found_.compared += static_cast<int64_t>(others.size());
    for (const Start& other : others)
      if (other.may_be_no_worse_than(own) && of(other).no_worse_than(label, resources, counts_))
        return;
    std::erase_if(others, [&](const Start& other) {
      return own.may_be_no_worse_than(other) && label.no_worse_than(of(other), resources, counts_);
    });
    others.push_back(own);
    labels_.push_back(label);
  }

  /// Of one that is the next.
  Start start_of(const Label& label) const {
    Start start{label.path, 0, label.stages, static_cast<int>(labels_.size())};
    for (size_t i = 0; i < std::min<size_t>(4, tables_.resources().size()); ++i)
      start.used |= static_cast<uint64_t>(std::min(label.used[i], 0x7fff)) << (16 * i);
    return start;
  }

  void finish(Label label) {
    label.maxima[0] = std::max(label.maxima[0], label.own_busy);
    const double seconds = seconds_of(label.maxima, label.path);
    if (!(seconds < cutoff_)) return;
    GridPlan plan{tables_.shape().micro_batch, tables_.shape().replicas, {}};
    for (const Label* stage = &label;; stage = &labels_[static_cast<size_t>(stage->after)]) {
      plan.stages.push_back({stage->first, stage->end, tables_.config(stage->config)});
      if (stage->after == kNone) break;
    }
    cutoff_ = found_.seconds = seconds;
    found_.plan = std::move(plan);
  }

  const GridTables& tables_;
  const GridWindows& windows_;
  const GridReach& reach_;
  const GridBounds& bounds_;
  const GridMaxima least_;
  const GridMaxima counts_;
  double cutoff_;
  size_t most_labels_;
  std::vector<Label> labels_;
  /// Labels that nothing dominates, by layer and config.
  std::vector<std::vector<Start>> starting_;
  GridFound found_;
};

}  // namespace

GridFound best_grid(const GridKnown& known, const GridMaxima& least, double cutoff,
                    size_t most_labels) {
  return GridLabels(known, least, cutoff, most_labels).run();
}

}  // namespace motley
