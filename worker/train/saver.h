#pragma once
// Checkpoints of a whole group while it trains (worker/checkpoint/store.h): every rank snapshots
// its slices at a step boundary and writes them in the background; when the step agreement says
// that all are done, rank 0 commits. Shards of ranks on other file systems are sent to rank 0
// first.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "core/attempt.h"
#include "core/file_system.h"
#include "core/manifest.h"
#include "core/reports.h"
#include "core/result.h"
#include "worker/checkpoint/store.h"
#include "worker/train/rank_parts.h"
#include "worker/train/storage.h"

namespace motley {

/// What came of a save, the same on all ranks. A failed save leaves older checkpoints as they were.
struct SaveOutcome {
  bool committed = false;
  std::string error;  ///< when not
  SavedReport report;
};

class Saver {
 public:
  /// Borrows everything. Allocates the snapshot buffers.
  static Result<std::unique_ptr<Saver>> create(const Attempt& attempt, RankParts& parts,
                                               Communicator& world, const Storage& storage,
                                               FileSystem& fs);

  /// A save has begun and is not over: the same on all ranks.
  bool in_flight() const { return step_.has_value(); }
  /// This rank's shard is durable, or has failed.
  bool shard_settled() const { return in_flight() && writer_->written(); }

  /// Until then, calling `on_progress` now and then; returns at once when nothing is in flight.
  void wait_for_shard(const std::function<void()>& on_progress) const;

  /// At the boundary after `step`, on all ranks, when nothing is in flight.
  Result<Unit> begin(int64_t step);
  /// Collective, when in flight and this rank's shard is settled: gathers, commits. An error ends
  /// the run; a save that merely failed is an outcome.
  Result<SaveOutcome> finish();

 private:
  Saver(const Attempt& attempt, RankParts& parts, Communicator& world, const Storage& storage,
        FileSystem& fs);
  Result<std::vector<ShardReport>> gather_reports(ShardReport mine);
  Result<Unit> bring_shards(std::vector<ShardReport>* reports);
  Result<Unit> receive_shard_of(ShardReport* report);
  SaveOutcome commit_all(const std::vector<ShardReport>& reports);
  void tidy_up(bool committed);
  Manifest manifest_base() const;

  const Attempt& attempt_;
  RankParts& parts_;
  Communicator& world_;
  const Storage& storage_;
  FileSystem& fs_;
  const std::string directory_;
  std::unique_ptr<ShardWriter> writer_;
  MemoryCharge snapshot_;        ///< what the writer holds
  std::optional<int64_t> step_;  ///< of the save in flight
  int exact_exponent_ = 0;       ///< at its boundary
  int64_t steps_held_ = 0;
  LossScaleState loss_scale_;  ///< the same
  Nanos begun_{0};
};

}  // namespace motley
