#include "worker/train/rank_memory.h"

#include "core/rank_memory.h"
#include "core/spec/precisions.h"
#include "core/sync_groups.h"
#include "worker/train/group_average.h"
#include "worker/train/rank_share.h"
#include "worker/train/slice_exchange.h"

namespace motley {

DeviceTraits traits_driven(const JobSpec& job, const DeviceSpec& device, Precision planned) {
  return {kind_driven(job, device), precision_allowed(job, device, planned), device.threads};
}

MemoryEstimate estimate_rank(const JobSpec& job, const Plan& plan, Rank rank,
                             const DeviceTraits& device, const DeviceIslands& islands) {
  const int element_bytes = full_bytes(device.precision);
  int64_t owned = 0;
  for (const Ownership& owner : plan.owners)
    if (owner.owner == rank) owned += owner.slice.elements();
  MemoryEstimate bytes = estimate_engine(engine_options(job, plan, rank, islands), device);
  const GroupPart part = group_part(plan, job.model, rank);
  const SliceExchangeNeeds exchange = slice_exchange_needs(
      part.plan, job.model, part.self,
      {gradient_element_bytes(job.train.numerics, element_bytes), element_bytes}, islands);
  bytes.exchange = exchange.bytes + group_average_needs(plan, job.model, rank, element_bytes,
                                                        device.kind != DeviceKind::kCuda);
  bytes.snapshot = snapshot_bytes(owned, element_bytes, exchange.compresses);
  return bytes;
}

}  // namespace motley
