#include "planner/costs/slice_traffic.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "core/holdings.h"

namespace motley {
namespace {

/// Who holds which slice of a tensor.
struct Holder {
  size_t rank = 0;
  const Holding* holding = nullptr;
};

/// What ranks hold; those whose stages have the same layers and shares hold the same.
class Held {
 public:
  Held(const Plan& plan, const ModelSpec& model) : of_rank_(plan.ranks.size()) {
    for (const ReplicaPlan& replica : plan.replicas)
      for (const StagePlan& stage : replica.stages)
        for (size_t member = 0; member < stage.ranks.size(); ++member)
          add(stage, static_cast<int>(member), model);
  }

  const std::vector<Holding>& of(size_t rank) const { return *of_rank_[rank]; }
  const std::vector<Holder>& holders(const std::string& tensor) const {
    return holders_.at(tensor);
  }

 private:
  using Shape = std::tuple<LayerIndex, LayerIndex, std::vector<double>, int>;

  void add(const StagePlan& stage, int member, const ModelSpec& model) {
    const auto [found, is_new] =
        known_.try_emplace({stage.first_layer, stage.last_layer, stage.shares, member});
    if (is_new) found->second = holdings_of(model, stage, member);
    const auto rank = static_cast<size_t>(stage.ranks[static_cast<size_t>(member)].value());
    of_rank_[rank] = &found->second;
    for (const Holding& holding : found->second)
      holders_[holding.tensor.name].push_back({rank, &holding});
  }

  std::map<Shape, std::vector<Holding>> known_;
  std::vector<const std::vector<Holding>*> of_rank_;
  std::map<std::string, std::vector<Holder>> holders_;
};

void be_distinct(std::vector<Rank>* ranks) {
  std::sort(ranks->begin(), ranks->end());
  ranks->erase(std::unique(ranks->begin(), ranks->end()), ranks->end());
}

/// Slices of one owner follow each other, and so do their holders: most of them were met before.
void meet(Rank rank, std::vector<Rank>* peers) {
  constexpr size_t kOften = 4096;
  if (peers->back() == rank) return;
  peers->push_back(rank);
  if (peers->size() % kOften == 0) be_distinct(peers);
}

}  // namespace

std::vector<SliceTraffic> slice_traffic(const Plan& plan, const ModelSpec& model) {
  const Held held(plan, model);
  std::vector<SliceTraffic> traffic(plan.ranks.size());
  for (size_t rank = 0; rank < traffic.size(); ++rank) {
    traffic[rank].peers = {Rank(static_cast<int>(rank))};
    for (const Holding& holding : held.of(rank)) traffic[rank].held += holding.slice.elements();
  }
  Slice common;
  for (const Ownership& owned : plan.owners) {
    const auto owner = static_cast<size_t>(owned.owner.value());
    traffic[owner].owned += owned.slice.elements();
    for (const auto& [holder, copy] : held.holders(owned.tensor)) {
      if (holder == owner || !intersect(copy->slice, owned.slice, &common)) continue;
      const int64_t elements = common.elements();
      meet(Rank(static_cast<int>(holder)), &traffic[owner].peers);
      meet(owned.owner, &traffic[holder].peers);
      traffic[owner].sent += elements;  // the result
      traffic[holder].received += elements;
      if (!copy->counted) continue;
      traffic[holder].sent += elements;  // a gradient
      traffic[owner].received += elements;
    }
  }
  for (SliceTraffic& rank : traffic) be_distinct(&rank.peers);
  return traffic;
}

std::vector<std::string> hosts_of(const Plan& plan, const std::vector<Rank>& ranks) {
  std::set<std::string> hosts;
  for (const Rank rank : ranks) hosts.insert(plan.ranks[static_cast<size_t>(rank.value())].host);
  return {hosts.begin(), hosts.end()};
}

double exchange_seconds(const ReductionModel& reduction, const Plan& plan,
                        const std::vector<Rank>& peers, double elements, double whole) {
  const auto ranks = static_cast<int>(peers.size());
  const double part = elements / (2.0 * (ranks - 1) / ranks * whole);
  return part * reduction.seconds(ranks, hosts_of(plan, peers));
}

}  // namespace motley
