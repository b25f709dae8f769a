#include "worker/train/rank_share.h"

#include <algorithm>

namespace motley {
namespace {

Result<int> replica_of(const Plan& plan, Rank rank) {
  for (size_t replica = 0; replica < plan.replicas.size(); ++replica) {
    const auto& stages = plan.replicas[replica].stages;
    for (const StagePlan& stage : stages) {
      if (std::find(stage.ranks.begin(), stage.ranks.end(), rank) == stage.ranks.end()) continue;
      if (stages.size() == 1 && stage.ranks.size() == 1) return static_cast<int>(replica);
      return fail(ErrorCode::kUnsupported,
                  "plan: this version runs replicas of one rank only, replica " +
                      std::to_string(replica) + " has more");
    }
  }
  return fail(ErrorCode::kInvalidSpec, "plan: no work for rank " + std::to_string(rank.value()));
}

/// The part of [0, samples), cut into global batches, that falls to the given pieces of one.
std::vector<SampleRange> deal(const std::vector<SampleRange>& pieces, int global_batch,
                              int samples) {
  std::vector<SampleRange> dealt;
  for (int begin = 0; begin < samples; begin += global_batch) {
    for (const SampleRange& piece : pieces) {
      const int first = begin + piece.first;
      const int count = std::min(piece.count, samples - first);
      if (count > 0) dealt.push_back({first, count});
    }
  }
  return dealt;
}

}  // namespace

int RankShare::samples() const {
  int samples = 0;
  for (const SampleRange& range : micro_batches) samples += range.count;
  return samples;
}

Result<RankShare> share_of(const Plan& plan, Rank rank, int evaluation_samples) {
  RankShare share;
  MOTLEY_TRY(share.replica, replica_of(plan, rank));
  share.micro_batches = micro_batches_of(plan, share.replica);
  share.evaluation = deal(share.micro_batches, plan.global_batch, evaluation_samples);
  for (const SampleRange& range : share.micro_batches) share.sizes.push_back(range.count);
  // In exact every rank evaluates in whole grains, also one that trains only the short last one.
  if (plan.numerics == Numerics::kExact) share.sizes.push_back(plan.grain);
  std::sort(share.sizes.begin(), share.sizes.end(), std::greater<>());
  share.sizes.erase(std::unique(share.sizes.begin(), share.sizes.end()), share.sizes.end());
  return share;
}

}  // namespace motley
