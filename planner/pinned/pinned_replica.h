#pragma once
// A replica that the job pins, priced for any number of samples: its micro-batch is found where the
// job leaves it open.

#include <map>
#include <string>
#include <vector>

#include "core/plan.h"
#include "core/result.h"
#include "planner/costs/replica_times.h"
#include "planner/plain/grain_table.h"
#include "planner/request.h"

namespace motley {

/// A grain of which every pinned micro-batch is whole; the job's where it says one.
int grain_with_pins(const JobSpec& job);

class PricedPin {
 public:
  /// Number `number` of the job's pinned replicas. kNoPlan where the fleet lacks one of its
  /// devices, or where one of them alone cannot hold the model; kInvalidSpec where its devices
  /// compute in another precision or were not measured. The request outlives it.
  static Result<PricedPin> make(const PlanRequest& request, size_t number, int grain);

  const PinnedReplica& pin() const { return *pin_; }
  /// Of a step of so many samples, the update before it included, sums of gradients apart; kNever
  /// where the micro-batch of no sample is left.
  double seconds(int samples) { return quickest(samples).seconds; }
  int micro_batch(int samples) { return quickest(samples).micro_batch; }
  /// From now on only smaller micro-batches than this. Whether there are any.
  bool use_less_than(int micro_batch);

  /// Its devices in the order of its ranks, and its stages with ranks counted from 0.
  const std::vector<RankPlacement>& ranks() const { return alone_.ranks; }
  const std::vector<StagePlan>& stages() const { return alone_.replicas.front().stages; }

 private:
  PricedPin(const PlanRequest& request, size_t number, int grain);
  Result<Unit> place_stages();
  Result<Precision> precision_of(const PinnedStage& stage, const std::string& key,
                                 const std::string& device) const;
  Result<Unit> find_sizes();
  Result<Unit> find_ready();
  const DeviceProfile& profile_of(size_t rank) const;
  bool is_whole() const;
  double seconds_with(int micro_batch, int samples);

  struct Quickest {
    double seconds = kNever;
    int micro_batch = 0;
  };
  const Quickest& quickest(int samples);

  KnownRanks known_ranks_;
  const PlanRequest* request_;
  const PinnedReplica* pin_;
  std::string key_;                ///< "pin.replicas.0"
  Plan alone_;                     ///< it and nothing else
  std::vector<int> sizes_;         ///< micro-batches
  std::map<int, Quickest> known_;  ///< by samples
};

}  // namespace motley
