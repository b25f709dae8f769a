#pragma once
// Everything a rank computes with, made once before training.

#include <memory>

#include "comm/communicator.h"
#include "core/attempt.h"
#include "core/result.h"
#include "core/sync_groups.h"
#include "kernels/device.h"
#include "worker/data/corpus.h"
#include "worker/engine/engine.h"
#include "worker/optimizer/loss_scale.h"
#include "worker/train/group_average.h"
#include "worker/train/island_sum.h"
#include "worker/train/pacer.h"
#include "worker/train/rank_share.h"
#include "worker/train/sections.h"
#include "worker/train/slice_exchange.h"
#include "worker/train/stage_group.h"

namespace motley {

struct RankParts {
  DeviceSpec spec;
  RankShare share;
  Pacer pacer;
  Sections sections;     ///< of the pacer
  MemoryAccount memory;  ///< of the buffers of this rank
  std::unique_ptr<Device> device;
  Bytes memory_limit{0};  ///< of the device
  Corpus corpus;
  std::unique_ptr<StageGroup> group;  ///< null where this rank has its stage for itself
  std::unique_ptr<Engine> engine;
  GroupPart part;                       ///< what of a step its sync group does
  std::unique_ptr<Communicator> peers;  ///< those of that group; null: all ranks are
  std::unique_ptr<SliceExchange> slices;
  std::unique_ptr<IslandSum> island;      ///< sums gradients; null: `slices` alone does
  std::unique_ptr<GroupAverage> average;  ///< null where groups do not train apart
  LossScale loss_scale;

  RankParts(DeviceSpec device_spec, RankShare rank_share, const Attempt& attempt)
      : spec(std::move(device_spec)),
        share(std::move(rank_share)),
        pacer(spec, attempt.fleet.clock, attempt.fleet.pace_flops),
        sections(pacer),
        loss_scale(attempt.job.train, scales_loss(attempt.plan)) {}
  /// Held so far at most, of the memory that the device's limit is for.
  Bytes counted_memory() const {
    return device->host_accessible() ? memory.peak() : memory.peak_of(MemoryUse::kDevice);
  }

  RankParts(const RankParts&) = delete;
  RankParts& operator=(const RankParts&) = delete;
};

/// kUsage when the plan is not for that many ranks.
Result<Unit> check_world(const Plan& plan, int ranks);

/// Checks the plan against the job and the world, opens this rank's device, loads the data,
/// connects islands of GPUs, builds the engine. Collective: on all ranks or on none. The attempt's
/// devices and data must be there, and in one version on all hosts (kBrokenInstall).
Result<std::unique_ptr<RankParts>> build_rank(const Attempt& attempt, Communicator& world);

}  // namespace motley
