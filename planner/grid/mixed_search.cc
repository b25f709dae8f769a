#include "planner/grid/mixed_search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <unordered_map>
#include <utility>

#include "planner/grid/grid_labels.h"
#include "planner/grid/grid_mixes.h"

namespace motley {
namespace {

/// Nearer than that steps are the same.
constexpr double kSame = 1 - 1e-12;
struct MixedEffort {
  GridMixLimits limits;
  size_t most_labels = 0;  ///< that begin with the same layer
  int64_t most_work = 0;   ///< over all shapes, with what was done before
};
/// Of few devices everything, within some tenths of a second; of many what is found in two passes
/// within a tenth, and two more for each thousand of them.
constexpr int kFewDevices = 12;
constexpr MixedEffort kOfFew[] = {
    {{.most_parts = 6, .most_counts = 1 << 20, .most_mixes = 5'000}, 20'000, 5'000'000}};
constexpr MixedEffort kOfMany[] = {
    {{.most_parts = 2, .most_counts = 8, .most_mixes = 200}, 4, 400'000},
    {{.most_parts = 2, .most_counts = 8, .most_mixes = 200}, 30, 1'000'000}};
constexpr int64_t kWorkOfADevice = 2'000;

/// A row of stages from the last one back.
struct Label {
  double busy = 0;  ///< seconds of the busiest stage but the first
  double own = 0;   ///< the same of the first, but for what comes in
  double path = 0, update = 0, reduction = 0;
  double bound = 0;  ///< no plan that ends so takes less
  int first = 0, from_end = 0;
  int mix = 0;
  int after = -1;        ///< the label without the first stage
  GridSends sends = {};  ///< between them
  std::array<int, kMostGridResources> taken = {};
};

/// A replica: the devices of each of its stages, and how long it computes a micro-batch.
struct Replica {
  double seconds = 0;
  std::vector<GridConfig> configs = {};
};

/// Whatever types are called, where they are not alike.
bool before(const Replica& a, const Replica& b) {
  if (a.seconds != b.seconds) return a.seconds < b.seconds;
  return std::lexicographical_compare(a.configs.begin(), a.configs.end(), b.configs.begin(),
                                      b.configs.end(), [](GridConfig one, GridConfig other) {
                                        return std::pair(one.type, one.degree) <
                                               std::pair(other.type, other.degree);
                                      });
}

class OfAShape {
 public:
  OfAShape(const GridCosts& costs, GridShape shape, const std::vector<GridGroups>& fleet,
           const MixedEffort& effort, GridBest* best, int64_t* work)
      : costs_(costs), mixes_(costs, shape, fleet), effort_(effort), best_(best), work_(work) {}

  /// Which no plan of the shape takes less than, if it takes less than the best; 0: not known.
  double run() {
    mixes_.find(effort_.limits);
    forget_end();
    starting_.resize(static_cast<size_t>(mixes_.layers()));
    for (int mix = 0; mix < mixes(); ++mix)
      for (int first = mixes_.layers() - 1; first >= 0; --first)
        if (!put_before(-1, mix, first, {})) break;
    for (int first = mixes_.layers() - 1; first > 0; --first) {
      forget_end();
      for (const int label : likely(first)) {
        if (*work_ > effort_.most_work) return 0;
        extend(label);
      }
    }
    return mixes_.complete() ? least_ : 0;
  }

 private:
  using Bucket = std::vector<int>;

  static size_t at(int number) { return static_cast<size_t>(number); }
  int mixes() const { return static_cast<int>(mixes_.all().size()); }
  const GridMix& mix_of(const Label& label) const { return mixes_.all()[at(label.mix)]; }
  bool may_be_quicker(double seconds) const { return seconds < best_->seconds * kSame; }

  /// Those that begin with a layer and may be part of the best plan; what is left out bounds it.
  std::vector<int> likely(int first) {
    std::vector<int> labels;
    for (const auto& [key, bucket] : starting_[at(first)])
      for (const int label : bucket)
        if (may_be_quicker(labels_[at(label)].bound)) labels.push_back(label);
    std::sort(labels.begin(), labels.end(), [&](int a, int b) {
      return std::pair(labels_[at(a)].bound, a) < std::pair(labels_[at(b)].bound, b);
    });
    if (labels.size() > effort_.most_labels) {
      least_ = std::min(least_, labels_[at(labels[effort_.most_labels])].bound);
      labels.resize(effort_.most_labels);
    }
    return labels;
  }

  void extend(int number) {
    const int first = labels_[at(number)].first;
    for (int mix = 0; mix < mixes(); ++mix) {
      if (!has_room(labels_[at(number)], mixes_.all()[at(mix)])) continue;
      for (const GridSends& sends : sends_between(mix, labels_[at(number)].mix, first))
        for (int begin = first - 1; begin >= 0; --begin)
          if (!put_before(number, mix, begin, sends)) break;
    }
  }

  const std::vector<GridSends>& sends_between(int before, int after, int layer) {
    const auto [found, is_new] = sends_.try_emplace(at(before) * mixes_.all().size() + at(after));
    if (is_new) {
      found->second = mixes_.sends(mixes_.all()[at(before)], mixes_.all()[at(after)], layer);
      *work_ += 5;
    }
    return found->second;
  }

  /// Of stages that end before the same layer, of which many labels begin.
  const GridMixPrice& price_of(int mix, int first, int end) {
    std::vector<GridMixPrice>& known = prices_[at(mix)];
    while (static_cast<int>(known.size()) < end - first)  // the shorter ones come first
      known.push_back(
          mixes_.price(mixes_.all()[at(mix)], end - 1 - static_cast<int>(known.size()), end));
    return known[at(end - first - 1)];
  }
  void forget_end() {
    sends_.clear();
    prices_.assign(mixes_.all().size(), {});
  }

  bool has_room(const Label& label, const GridMix& mix) const {
    for (size_t r = 0; r < mixes_.resources(); ++r)
      if (label.taken[r] + mix.taken[r] > mixes_.there(r)) return false;
    return true;
  }

  /// A stage of that mix from layer `first` on, before a label's or the last of all; false: nor any
  /// longer one may be.
  bool put_before(int after, int mix, int first, const GridSends& sends) {
    ++*work_;
    Label label = after < 0 ? Label{.first = mixes_.layers()} : labels_[at(after)];
    const GridMix& its = mixes_.all()[at(mix)];
    const int end = label.first;
    const GridMixPrice& price = price_of(mix, first, end);
    if (after >= 0) {
      const SendWeights weight = mixes_.weights(label.from_end, false);
      label.busy = std::max(label.busy, label.own + weight.in_busy * sends.in);
      label.path += weight.in_path * sends.in;
    }
    ++label.from_end;
    if (price.farthest_from_end < label.from_end) return false;
    if (mixes_.passes() * price.compute + label.path >= best_->seconds * kSame) return false;
    const SendWeights weight = mixes_.weights(label.from_end, first == 0);
    label.own = price.compute + weight.out_busy * sends.out;
    label.path += price.compute + weight.out_path * sends.out;
    label.update = std::max(label.update, price.update);
    label.reduction = std::max(label.reduction, price.reduction);
    label.first = first;
    label.mix = mix;
    label.after = after;
    label.sends = sends;
    for (size_t r = 0; r < mixes_.resources(); ++r) label.taken[r] += its.taken[r];
    keep(label);
    return true;
  }

  void keep(Label label) {
    double busiest = std::max(label.busy, label.own);
    if (label.first > 0) busiest = std::max(busiest, mixes_.least_busy(label.first, label.taken));
    label.bound = (mixes_.passes() - 1) * busiest + label.path + mixes_.least_path(label.first) +
                  label.update + label.reduction;
    if (!may_be_quicker(label.bound)) return;
    if (label.first == 0) return take(label);
    Bucket& bucket =
        starting_[at(label.first)][at(label.from_end) * mixes_.all().size() + at(label.mix)];
    for (const int other : bucket)
      if (no_worse(labels_[at(other)], label)) return;
    *work_ += static_cast<int64_t>(bucket.size());
    std::erase_if(bucket, [&](int other) { return no_worse(label, labels_[at(other)]); });
    bucket.push_back(static_cast<int>(labels_.size()));
    labels_.push_back(label);
  }

  bool no_worse(const Label& a, const Label& b) const {
    if (a.busy > b.busy || a.own > b.own || a.path > b.path || a.update > b.update ||
        a.reduction > b.reduction)
      return false;
    for (size_t r = 0; r < mixes_.resources(); ++r)
      if (a.taken[r] > b.taken[r]) return false;
    return true;
  }

  /// A whole plan. Sums may take longer than the least over all orders: then the least is a bound.
  void take(const Label& label) {
    std::vector<Replica> replicas;
    GridPlan plan = plan_of(label, &replicas);
    double seconds = costs_.step_seconds(plan);
    const bool all_orders = seconds > label.bound / kSame && plan.replicas <= kFewInOrder;
    while (all_orders && std::next_permutation(replicas.begin(), replicas.end(), before)) {
      GridPlan other = with_replicas(plan, replicas);
      const double others = costs_.step_seconds(other);
      if (others < seconds) plan = std::move(other), seconds = others;
    }
    if (seconds > label.bound / kSame) least_ = std::min(least_, label.bound);
    if (!may_be_quicker(seconds)) return;
    best_->plan = std::move(plan);
    best_->seconds = seconds;
  }

  /// With all of its replicas, alike ones together.
  GridPlan plan_of(const Label& label, std::vector<Replica>* replicas) const {
    GridPlan plan{mixes_.shape().micro_batch, mixes_.shape().replicas, {}};
    std::vector<int> parts;  // of the stage, by replica
    for (size_t part = 0; part < mix_of(label).parts.size(); ++part)
      parts.insert(parts.end(), at(mix_of(label).parts[part].second), static_cast<int>(part));
    replicas->assign(parts.size(), {});
    for (const Label* own = &label; own != nullptr;) {
      const Label* const next = own->after < 0 ? nullptr : &labels_[at(own->after)];
      plan.stages.push_back({own->first, next ? next->first : mixes_.layers(), {}});
      for (size_t i = 0; i < parts.size(); ++i) {
        const int config = mix_of(*own).parts[at(parts[i])].first;
        Replica& replica = (*replicas)[i];
        replica.configs.push_back(mixes_.config(config));
        replica.seconds += mixes_.compute(config, own->first, plan.stages.back().end);
      }
      if (next) parts = parts_after(*own, *next, parts);
      own = next;
    }
    std::sort(replicas->begin(), replicas->end(), before);
    return with_replicas(plan, *replicas);
  }

  std::vector<int> parts_after(const Label& own, const Label& next,
                               const std::vector<int>& parts) const {
    auto together = mixes_.put_together(mix_of(own), mix_of(next), next.first, own.sends);
    std::vector<int> after;
    for (const int part : parts) {
      std::vector<int>& left = together[at(part)];
      const auto found =
          std::find_if(left.begin(), left.end(), [](int count) { return count > 0; });
      --*found;
      after.push_back(static_cast<int>(found - left.begin()));
    }
    return after;
  }

  /// The plan's stages have the devices of the first ones, which are most where that may be.
  static GridPlan with_replicas(GridPlan plan, const std::vector<Replica>& replicas) {
    std::vector<GridReplicas> alike;
    for (const Replica& replica : replicas) {
      if (alike.empty() || alike.back().configs != replica.configs)
        alike.push_back({0, replica.configs});
      ++alike.back().count;
    }
    if (alike.front().count < alike.back().count) std::reverse(alike.begin(), alike.end());
    for (size_t s = 0; s < plan.stages.size(); ++s)
      plan.stages[s].config = alike.front().configs[s];
    plan.unlike.assign(alike.begin() + 1, alike.end());
    return plan;
  }

  const GridCosts& costs_;
  GridMixes mixes_;
  const MixedEffort& effort_;
  GridBest* best_;
  int64_t* work_;
  double least_ = std::numeric_limits<double>::infinity();
  std::vector<Label> labels_;
  /// By mixes, and by mix and number of layers: of stages with one end.
  std::unordered_map<size_t, std::vector<GridSends>> sends_;
  std::vector<std::vector<GridMixPrice>> prices_;
  /// By the layer they begin with, and distance from the end and mix.
  std::vector<std::unordered_map<size_t, Bucket>> starting_;
};

}  // namespace

MixedRecord search_mixed(const GridCosts& costs, const std::vector<GridShape>& shapes,
                         const std::vector<GridGroups>& fleet, GridBest* best) {
  int64_t devices = 0;
  for (const GridGroups& groups : fleet) devices += groups.empty() ? 0 : groups.at(1);
  std::vector<std::pair<double, GridShape>> likely;
  for (const GridShape shape : shapes)
    if (shape.replicas > 1)
      likely.emplace_back(GridMixes(costs, shape, fleet).least_seconds(), shape);
  std::stable_sort(likely.begin(), likely.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  MixedRecord record;
  const bool few = devices <= kFewDevices;
  for (MixedEffort effort : few ? std::span<const MixedEffort>(kOfFew) : kOfMany) {
    effort.most_work += few ? 0 : kWorkOfADevice * devices;
    record.least_seconds = std::numeric_limits<double>::infinity();
    for (const auto& [seconds, shape] : likely) {
      if (seconds >= best->seconds * kSame) break;
      const double least = OfAShape(costs, shape, fleet, effort, best, &record.nodes).run();
      record.least_seconds = std::min(record.least_seconds, least);
    }
  }
  if (!few && record.least_seconds < best->seconds * kSame) record.least_seconds = 0;
  return record;
}

}  // namespace motley
