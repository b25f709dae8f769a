#include "planner/costs/slice_traffic.h"

#include <bit>
#include <cstdint>
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

/// Which ranks exchange something with which, itself included: as bits, since the same meet over
/// and over.
class Meetings {
 public:
  explicit Meetings(size_t ranks) : words_((ranks + 63) / 64), bits_(ranks * words_) {
    for (size_t rank = 0; rank < ranks; ++rank) add(rank, rank);
  }

  void add(size_t rank, size_t peer) {
    bits_[rank * words_ + peer / 64] |= uint64_t{1} << (peer % 64);
  }

  std::vector<Rank> peers(size_t rank) const {
    std::vector<Rank> peers;
    for (size_t word = 0; word < words_; ++word)
      for (uint64_t left = bits_[rank * words_ + word]; left != 0; left &= left - 1)
        peers.emplace_back(static_cast<int>(64 * word) + std::countr_zero(left));
    return peers;
  }

 private:
  size_t words_;
  std::vector<uint64_t> bits_;
};

}  // namespace

std::vector<SliceTraffic> slice_traffic(const Plan& plan, const ModelSpec& model) {
  const Held held(plan, model);
  std::vector<SliceTraffic> traffic(plan.ranks.size());
  for (size_t rank = 0; rank < traffic.size(); ++rank) {
    for (const Holding& holding : held.of(rank)) traffic[rank].held += holding.slice.elements();
  }
  Meetings meetings(traffic.size());
  Slice common;
  for (const Ownership& owned : plan.owners) {
    const auto owner = static_cast<size_t>(owned.owner.value());
    traffic[owner].owned += owned.slice.elements();
    for (const auto& [holder, copy] : held.holders(owned.tensor)) {
      if (holder == owner || !intersect(copy->slice, owned.slice, &common)) continue;
      const int64_t elements = common.elements();
      meetings.add(owner, holder);
      meetings.add(holder, owner);
      traffic[owner].sent += elements;  // the result
      traffic[holder].received += elements;
      if (!copy->counted) continue;
      traffic[holder].sent += elements;  // a gradient
      traffic[owner].received += elements;
    }
  }
  for (size_t rank = 0; rank < traffic.size(); ++rank) traffic[rank].peers = meetings.peers(rank);
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
