#include "worker/train/rank_memory.h"

#include <algorithm>
#include <utility>

#include "core/rank_memory.h"
#include "core/spec/precisions.h"
#include "worker/train/group_average.h"
#include "worker/train/rank_share.h"

namespace motley {

DeviceTraits traits_driven(const JobSpec& job, const DeviceSpec& device, Precision planned) {
  return {kind_driven(job, device), precision_allowed(job, device, planned), device.threads};
}

RankMemoryCounter::Group::Group(GroupPart its, const ModelSpec& model, const IslandsOf& islands)
    : part(std::move(its)), classes(part.plan, model, islands(part.plan)) {}

const SliceExchangeCounter& RankMemoryCounter::Group::exchange(const ElementBytes& elements) {
  const std::pair key(elements.gradient, elements.weight);
  const auto found = exchanges.find(key);
  if (found != exchanges.end()) return found->second;
  return exchanges.try_emplace(key, classes, elements).first->second;
}

RankMemoryCounter::RankMemoryCounter(const JobSpec& job, const Plan& plan, IslandsOf islands)
    : job_(job),
      plan_(plan),
      islands_(std::move(islands)),
      classes_(plan, job.model),
      group_of_rank_(group_of_ranks(plan)) {
  for (const Ownership& owner : plan.owners) owned_[owner.owner] += owner.slice.elements();
}

RankMemoryCounter::Group& RankMemoryCounter::group_of(Rank rank) {
  std::unique_ptr<Group>& group = groups_[group_of_rank_[static_cast<size_t>(rank.value())]];
  if (group == nullptr)
    group = std::make_unique<Group>(group_part(plan_, job_.model, rank), job_.model, islands_);
  return *group;
}

MemoryEstimate RankMemoryCounter::count(Rank rank, const DeviceTraits& device) {
  const int element_bytes = full_bytes(device.precision);
  Group& group = group_of(rank);
  const auto place = std::ranges::lower_bound(group.part.ranks, rank.value());
  const Rank self(static_cast<int>(place - group.part.ranks.begin()));
  MemoryEstimate bytes =
      estimate_engine(engine_options(job_, plan_, rank, {group.classes, self}), device);
  const ElementBytes elements{gradient_element_bytes(job_.train.numerics, element_bytes),
                              element_bytes};
  const SliceExchangeNeeds exchange = group.exchange(elements).count(self);
  bytes.exchange = exchange.bytes + group_average_needs(classes_, rank, element_bytes,
                                                        device.kind != DeviceKind::kCuda);
  bytes.snapshot = snapshot_bytes(owned_[rank], element_bytes, exchange.compresses);
  return bytes;
}

MemoryEstimate estimate_rank(const JobSpec& job, const Plan& plan, Rank rank,
                             const DeviceTraits& device, const DeviceIslands& islands) {
  return RankMemoryCounter(job, plan, [&](const Plan&) { return islands; }).count(rank, device);
}

}  // namespace motley
