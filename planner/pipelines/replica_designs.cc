#include "planner/pipelines/replica_designs.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace motley {
namespace {

/// Of a row that shares stages, for it to be worth improving.
constexpr double kWorthImproving = 0.995;

std::vector<int> members_of(const GroupCounts& devices) {
  std::vector<int> members;
  for (size_t group = 0; group < devices.size(); ++group)
    members.insert(members.end(), static_cast<size_t>(devices[group]), static_cast<int>(group));
  return members;
}

/// All, if they are at most so many; else by rotation, so that every group is first and last in
/// some, each also mirrored and with neighbours changed.
std::vector<std::vector<int>> orders_of(const GroupCounts& devices, size_t most, bool* all) {
  std::vector<std::vector<int>> orders;
  std::vector<int> order = members_of(devices);
  const auto add = [&](const std::vector<int>& one) {
    if (orders.size() < most && std::find(orders.begin(), orders.end(), one) == orders.end())
      orders.push_back(one);
  };
  do {
    orders.push_back(order);
  } while (orders.size() <= most && std::next_permutation(order.begin(), order.end()));
  *all = orders.size() <= most;
  if (*all) return orders;
  orders.clear();
  std::vector<int> turned = members_of(devices);
  for (size_t i = 0; i < turned.size(); ++i) {
    add(turned);
    add({turned.rbegin(), turned.rend()});
    std::rotate(turned.begin(), turned.begin() + 1, turned.end());
  }
  for (size_t i = 0; i < turned.size(); ++i) {
    for (size_t j = 0; j + 1 < turned.size(); ++j) {
      std::vector<int> swapped = turned;
      std::swap(swapped[j], swapped[j + 1]);
      add(swapped);
    }
    std::rotate(turned.begin(), turned.begin() + 1, turned.end());
  }
  return orders;
}

}  // namespace

ReplicaDesigns::ReplicaDesigns(const PipelineCosts& costs, GroupCounts devices,
                               const std::vector<int>& micro_batches,
                               const std::vector<int>& samples, const DesignEffort& effort)
    : costs_(&costs), devices_(std::move(devices)) {
  for (size_t group = 0; group < devices_.size(); ++group)
    if (devices_[group] > 0 && !costs.priced(static_cast<int>(group))) return;
  if (std::accumulate(devices_.begin(), devices_.end(), 0) > costs.layers()) return;
  const std::vector<std::vector<int>> orders = orders_of(devices_, effort.most_orders, &proved_);
  for (const int count : samples) {
    double least = seconds(count);
    for (const int micro_batch : micro_batches) {
      least = std::min(
          least, add(orders, micro_batch, count, effort.much_slower * least, effort.most_nodes));
      if (micro_batch >= count) break;  // larger ones compute the same single micro-batch
    }
  }
}

ReplicaDesigns::ReplicaDesigns(const PipelineCosts& costs, GroupCounts devices,
                               const std::vector<Pipeline>& pipelines)
    : costs_(&costs), devices_(std::move(devices)), proved_(false) {
  for (const Pipeline& pipeline : pipelines) keep(pipeline);
}

bool ReplicaDesigns::share(const std::vector<int>& micro_batches, const std::vector<int>& samples,
                           const RowsWanted& wanted, const DesignEffort& effort) {
  const size_t before = designs_.size();
  wanted_ = wanted;
  const SharedRows shared = shared_rows(*costs_, devices_, wanted, effort.most_orders);
  proved_ = proved_ && shared.all;
  if (shared.rows.empty()) return false;
  for (const int count : samples) {
    share_whole(micro_batches, count);
    double least = seconds(count);
    if (!shared.all && least < kNever) {
      share_some(micro_batches, count, effort);
      continue;
    }
    for (const int micro_batch : micro_batches) {
      least = std::min(least, add(shared.rows, micro_batch, count, effort.much_slower * least,
                                  effort.most_nodes));
      if (micro_batch >= count) break;
    }
  }
  return designs_.size() > before;
}

/// All of them in one stage, also where others compute sooner: its ends exchange nothing.
void ReplicaDesigns::share_whole(const std::vector<int>& micro_batches, int samples) {
  std::vector<StageRow> rows;
  for (size_t set = 0; set < costs_->tensor_sets().size(); ++set) {
    GroupCounts members(devices_.size(), 0);
    for (const TensorSet::Member& member : costs_->tensor_sets()[set].members)
      ++members[static_cast<size_t>(member.group)];
    if (members == devices_) rows.push_back({costs_->groups() + static_cast<int>(set)});
  }
  if (rows.empty() || wanted_.stages.value_or(1) != 1) return;
  const bool proved = proved_;  // there is nothing to cut
  double least = kNever;
  for (const int micro_batch : micro_batches) {
    least = std::min(least, add(rows, micro_batch, samples, least, 1));
    if (micro_batch >= samples) break;
  }
  proved_ = proved;
}

/// The row of what is known, with stages put together.
void ReplicaDesigns::share_some(const std::vector<int>& micro_batches, int samples,
                                const DesignEffort& effort) {
  const Pipeline known = quickest(samples);
  const double enough = kWorthImproving * seconds(samples);
  std::vector<StageRow> rows = rows_sharing_more(*costs_, row_of(known), wanted_);
  std::erase_if(rows,
                [&](const StageRow& row) { return least_seconds_of(row, samples) >= enough; });
  const double least = add(rows, known.micro_batch, samples, enough, effort.most_nodes);
  if (least < enough) improve(micro_batches, samples, effort.most_nodes);
}

/// By the first of its tensor sets.
double ReplicaDesigns::least_seconds_of(const StageRow& row, int samples) const {
  for (const int group : row)
    if (const TensorSet* set = costs_->tensor_set(group)) {
      GroupCounts sharing(devices_.size(), 0);
      for (const TensorSet::Member& member : set->members)
        ++sharing[static_cast<size_t>(member.group)];
      return costs_->least_seconds_sharing(sharing, devices_, samples);
    }
  return 0;
}

StageRow ReplicaDesigns::row_of(const Pipeline& pipeline) {
  StageRow row;
  for (const PipelineStage& stage : pipeline.stages) row.push_back(stage.group);
  return row;
}

double ReplicaDesigns::add(const std::vector<std::vector<int>>& orders, int micro_batch,
                           int samples, double cutoff, int64_t most_nodes) {
  PipelineCut best;
  best.seconds = cutoff;
  StageCosts known(*costs_, micro_batch, samples);
  for (const std::vector<int>& order : orders) {
    PipelineCut cut = best_cut(&known, order, best.seconds, most_nodes);
    nodes_ += cut.nodes;
    proved_ = proved_ && cut.proved;
    if (cut.seconds < best.seconds) best = std::move(cut);
  }
  if (!best.pipeline.stages.empty()) keep(std::move(best.pipeline));
  return best.seconds;
}

void ReplicaDesigns::keep(Pipeline pipeline) {
  for (const Design& design : designs_)
    if (design.pipeline == pipeline) return;
  Design design{std::move(pipeline), 0};
  for (const PipelineStage& stage : design.pipeline.stages) {
    const PassSeconds pass = costs_->pass(stage, design.pipeline.micro_batch);
    design.busiest = std::max(design.busiest, pass.forward + pass.backward);
  }
  designs_.push_back(std::move(design));
  known_.clear();
}

void ReplicaDesigns::improve(const std::vector<int>& micro_batches, int samples,
                             int64_t most_nodes) {
  double least = seconds(samples);
  if (least == kNever) return;
  const Pipeline& quickest = this->quickest(samples);
  int micro_batch = quickest.micro_batch;
  StageRow order = row_of(quickest);
  const auto try_order = [&](const std::vector<int>& other, int size) {
    const double found = add({other}, size, samples, least, most_nodes);
    if (found >= least) return false;
    least = found;
    micro_batch = size;
    return true;
  };
  const auto place = std::find(micro_batches.begin(), micro_batches.end(), micro_batch);
  for (auto other = place - std::min<std::ptrdiff_t>(2, place - micro_batches.begin());
       other != micro_batches.end() && other - place <= 2; ++other)
    try_order(order, *other);
  for (bool better = true; better;) {
    better = false;
    for (size_t i = 0; i < order.size(); ++i)
      for (size_t j = i + 1; j < order.size(); ++j) {
        if (order[i] == order[j]) continue;
        std::swap(order[i], order[j]);
        if (try_order(order, micro_batch))
          better = true;
        else
          std::swap(order[i], order[j]);
      }
    for (StageRow& other : rows_sharing_unlike(*costs_, order, wanted_)) {
      if (!try_order(other, micro_batch)) continue;
      order = std::move(other);
      better = true;
      break;
    }
  }
}

bool ReplicaDesigns::still_fits(int samples) const {
  return std::all_of(designs_.begin(), designs_.end(),
                     [&](const Design& design) { return costs_->fits(design.pipeline, samples); });
}

const ReplicaDesigns::Quickest& ReplicaDesigns::find(int samples) {
  const auto [found, is_new] = known_.try_emplace(samples);
  if (!is_new) return found->second;
  const auto next = std::next(found);  // what is quickest for a few more often is for these, too
  const size_t likely = next == known_.end() ? 0 : next->second.design;
  if (likely < designs_.size()) be_quickest_of(likely, samples, &found->second);
  for (size_t i = 0; i < designs_.size(); ++i)
    if (i != likely) be_quickest_of(i, samples, &found->second);
  return found->second;
}

/// Of equals the first.
void ReplicaDesigns::be_quickest_of(size_t design, int samples, Quickest* quickest) const {
  const auto& [pipeline, busiest] = designs_[design];
  const bool whole = pipeline.stages.size() == 1;  // may be priced as measured whole
  if (!whole && samples / pipeline.micro_batch * busiest > quickest->seconds) return;
  if (!costs_->fits(pipeline, samples)) return;
  const double seconds = costs_->seconds(pipeline, samples);
  if (seconds < quickest->seconds || (seconds == quickest->seconds && design < quickest->design))
    *quickest = {seconds, design};
}

double ReplicaDesigns::seconds(int samples) { return find(samples).seconds; }

const Pipeline& ReplicaDesigns::quickest(int samples) {
  return designs_[find(samples).design].pipeline;
}

std::vector<std::pair<double, Pipeline>> ReplicaDesigns::quickest_by_length(int samples) const {
  std::map<size_t, std::pair<double, Pipeline>> quickest;
  for (const auto& [pipeline, busiest] : designs_) {
    if (!costs_->fits(pipeline, samples)) continue;
    const double seconds = costs_->seconds(pipeline, samples);
    auto& known = quickest.try_emplace(pipeline.stages.size(), kNever, Pipeline{}).first->second;
    if (seconds < known.first) known = {seconds, pipeline};
  }
  std::vector<std::pair<double, Pipeline>> all;
  for (auto& [stages, one] : quickest) all.push_back(std::move(one));
  return all;
}

int ReplicaDesigns::grains_within(double limit, int grain, int missing, int most) {
  int low = 0, high = most;  // low is within
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (seconds(middle * grain - missing) <= limit)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

}  // namespace motley
