#include "worker/train/rank_share.h"

#include <algorithm>
#include <functional>

#include "core/holdings.h"
#include "core/pipeline.h"
#include "core/sync_groups.h"

namespace motley {
namespace {

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

RankShare share_of(const Plan& plan, Rank rank, int evaluation_samples) {
  const Role role = role_of(plan, rank);
  RankShare share;
  share.micro_batches = micro_batches_of(plan, role.replica);
  share.in_flight = most_in_flight(
      static_cast<int>(plan.replicas[static_cast<size_t>(role.replica)].stages.size()), role.stage,
      static_cast<int>(share.micro_batches.size()));
  share.evaluation = deal(share.micro_batches, plan.global_batch, evaluation_samples);
  for (const SampleRange& range : share.micro_batches) share.sizes.push_back(range.count);
  // In exact every rank evaluates in whole grains, also one that trains only the short last one.
  if (plan.numerics == Numerics::kExact) share.sizes.push_back(plan.grain);
  std::sort(share.sizes.begin(), share.sizes.end(), std::greater<>());
  share.sizes.erase(std::unique(share.sizes.begin(), share.sizes.end()), share.sizes.end());
  return share;
}

bool scales_loss(const Plan& plan) {
  for (const ReplicaPlan& replica : plan.replicas)
    for (const StagePlan& stage : replica.stages)
      if (stage.precision == Precision::kFp16) return true;
  return false;
}

EngineOptions engine_options(const JobSpec& job, const Plan& plan, Rank rank,
                             const DeviceIslands& islands) {
  const GroupPart part = group_part(plan, job.model, rank);
  PlanClasses classes(part.plan, job.model, islands);
  return engine_options(job, plan, rank, {classes, part.self});
}

EngineOptions engine_options(const JobSpec& job, const Plan& plan, Rank rank,
                             const RankOfGroup& in_group) {
  const Role role = role_of(plan, rank);
  const RankShare share = share_of(plan, rank, 0);
  EngineOptions options;
  options.model = job.model;
  options.numerics = plan.numerics;
  options.micro_batches = share.sizes;
  options.optimizer = job.train.optimizer;
  options.seed = job.train.seed;
  options.scale_loss = scales_loss(plan);
  options.stage = stage_of(plan, role);
  options.member = role.member;
  options.in_flight = share.in_flight;
  const auto& [classes, self] = in_group;
  options.owned.emplace();
  for (const Ownership& owner : classes.plan().owners)
    if (owner.owner == self) options.owned->push_back(owner);
  options.shard_optimizer = plan.shard_optimizer;
  const RankPlacement& place = plan.ranks[static_cast<size_t>(rank.value())];
  options.host_optimizer = place.host_optimizer;
  options.managed_memory = place.managed_memory;
  options.exchanges_gradients = classes.has_part(self, gradient_use(plan));
  // Groups that train apart do not shard.
  options.exchanges_weights =
      plan.shard_optimizer && classes.has_part(self, SliceUse::kOwnersToHolders);
  return options;
}

}  // namespace motley
