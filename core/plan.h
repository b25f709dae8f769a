#pragma once
// Who computes what: the one document planner and workers share (core/FORMATS.md, "plan").

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/link_profile.h"
#include "core/model.h"
#include "core/recompute.h"
#include "core/result.h"
#include "core/slices.h"
#include "core/spec/job_spec.h"

namespace motley {

/// One MPI rank and the device it drives. Ranks count from 0 in this order.
struct RankPlacement {
  std::string device;  ///< DeviceSpec::id
  std::string host;
  std::string type;
  bool host_optimizer = false;  ///< optimizer state lies in host memory, not on the device
  /// Parameters and optimizer state lie in memory that the driver moves between device and host, so
  /// that they may be more than the device holds; a CPU has no other.
  bool managed_memory = false;
};

/// Consecutive layers on one or more ranks. With several ranks, share[i] of heads, MLP columns and
/// vocabulary belong to ranks[i] (tensor parallelism).
struct StagePlan {
  LayerIndex first_layer = 0;
  LayerIndex last_layer = 0;  ///< inclusive
  std::vector<Rank> ranks;
  std::vector<double> shares;
  std::vector<Recompute> recompute = {};   ///< one for each layer; empty: none
  Precision precision = Precision::kFp32;  ///< its ranks compute in

  int layers() const { return last_layer - first_layer + 1; }
};

/// A complete copy of the model and the samples it computes.
struct ReplicaPlan {
  std::vector<StagePlan> stages;
  int micro_batch = 0;  ///< samples, whole grains; the last one of a step may be smaller
  int grains = 0;       ///< of each step; replicas take consecutive runs of grains in their order
};

/// The rank that commits a slice to checkpoints (and updates it where optimizer state is sharded).
struct Ownership {
  std::string tensor;
  Slice slice;
  Rank owner;
};

/// Local SGD (Stich 2019): groups of hosts train by themselves, and all average what they have
/// learnt every so many steps (core/sync_groups.h).
struct SyncPlan {
  int across = 1;  ///< steps from one average to the next; 1: gradients are summed over all ranks
  std::vector<std::vector<std::string>> groups = {};  ///< of hosts; empty: as links have it
  bool operator==(const SyncPlan&) const = default;
};

struct RankPrediction {
  Rank rank;
  double compute_seconds = 0;  ///< forward, backward and fixed overhead of a step
  double update_seconds = 0;   ///< of the step before: ranks meet after computing only
  double wait_seconds = 0;     ///< until the slowest arrives
  Bytes memory{0};             ///< counted peak, of what memory_limit is for
  Bytes memory_limit{0};
  Bytes host_memory{0};                ///< counted, besides; of a CPU it is part of `memory`
  double solo_samples_per_second = 0;  ///< this device alone on the whole batch; summed layer
                                       ///< speeds where it cannot hold the model
  double section_seconds() const { return compute_seconds + update_seconds; }
};

/// Bubble and exposed communication apart, the parts of a step are those of the slowest rank; they
/// sum to it.
struct Prediction {
  double step_seconds = 0;
  double compute_seconds = 0;
  double bubble_seconds = 0;
  double communication_seconds = 0;  ///< exposed
  double hidden_seconds = 0;         ///< of communication beside computing: no part of the step
  double update_seconds = 0;
  double uncertainty = 0;  ///< relative, from the profile's residuals and spreads
  double samples_per_second = 0;
  double solo_sum_samples_per_second = 0;
  double integer_bound_efficiency =
      0;  ///< what a perfect deal of whole grains could reach of the solo sum
  double cost_per_hour = 0;
  std::vector<RankPrediction> ranks;

  /// The rank with the longest section, the first of equals; null where nothing was predicted.
  const RankPrediction* slowest() const;
};

/// One candidate that lost, for --explain.
struct RejectedPlan {
  std::string what;
  std::string why;
  double step_seconds = 0;  ///< 0: not feasible
};

struct SearchRecord {
  std::string space;  ///< the dimensions searched, in words
  double step_seconds = 0;
  double lower_bound_step_seconds = 0;  ///< 0: none is known; null in JSON
  /// Of all steps, where the cheapest plan was looked for; else 0, and not in JSON.
  double cost = 0;
  double lower_bound_cost = 0;
  int64_t nodes = 0;
  std::vector<RejectedPlan> rejected;  ///< best first

  /// How far the plan may be above the best of `space` in what was looked for, cost or time; 0
  /// where no bound is known.
  double gap() const;
};

struct LeftOut {
  std::string device;
  std::string why;
};

struct Plan {
  std::string id;       ///< XXH3 of the document without id and search; same input, same id
  std::string job_key;  ///< of the profile it was made from
  Numerics numerics = Numerics::kFast;
  int global_batch = 0;
  int grain = 0;  ///< samples; the last grain of a step may be short
  std::vector<RankPlacement> ranks;
  std::vector<ReplicaPlan> replicas;
  std::vector<Ownership> owners;
  /// Each slice's optimizer state lies at its owner alone, who updates it and sends the weights to
  /// the other holders (Rajbhandari et al. 2020). Otherwise every holder keeps and updates its own.
  bool shard_optimizer = false;
  /// The order of sums: by host, within one by rank (core/reduction.h).
  std::string reduction = "ordered";
  /// Between its hosts, as far as they were measured: what reductions are spread by. Each pair
  /// once, rising.
  std::vector<LinkProfile> links;
  LinkCompression compression;  ///< of gradients on links
  SyncPlan sync;
  Prediction prediction;
  SearchRecord search;
  std::vector<LeftOut> left_out;

  int world_size() const { return static_cast<int>(ranks.size()); }
  int grain_count() const { return (global_batch + grain - 1) / grain; }
};

/// Whether any rank has less than the whole model to itself.
bool is_cut(const Plan& plan);

/// The samples [first, first + count) of a step's global batch.
struct SampleRange {
  int first = 0;
  int count = 0;
};
/// The samples of replica number `replica`: its grains in order, the last grain of the step perhaps
/// short.
SampleRange samples_of(const Plan& plan, int replica);
/// Its micro-batches: `micro_batch` samples each, the last perhaps fewer (in exact: one grain
/// each).
std::vector<SampleRange> micro_batches_of(const Plan& plan, int replica);

/// Everything that must hold of a plan for this model: grains sum to the global batch, stages cover
/// the layers in order, no empty stage, ranks known and used once, every rank of a stage has heads,
/// columns and vocabulary, owners hold what they own and tile every tensor, memory within limits,
/// exact's demands, each replica within one group that averages. kInvalidSpec with the JSON pointer
/// of the fault and the reason.
Result<Unit> validate(const Plan& plan, const ModelSpec& model);
/// All of that but the owners, which may still be missing.
Result<Unit> validate_cut(const Plan& plan, const ModelSpec& model);

/// That the plan was made for this job: its batch, numerics, grain where the job gives one and,
/// where the plan names a job, model, precision and optimizer. kInvalidSpec with the JSON pointer.
Result<Unit> check_made_for(const Plan& plan, const JobSpec& job);
/// Both: valid, and for this job.
Result<Unit> validate_for(const Plan& plan, const JobSpec& job);

/// Every slice dealt to those who hold it: what the same ranks hold goes to them in contiguous runs
/// of about equal bytes, cut between rows. Where state is sharded they alternate over the model, so
/// that all have something to receive whatever part of it a backward pass is at. Needs ranks and
/// replicas of a plan that is valid but for its owners.
std::vector<Ownership> even_ownership(const Plan& plan, const ModelSpec& model);

nlohmann::json to_json(const Plan& plan);
/// kInvalidSpec with the JSON pointer of the fault. What complete() fills in may be missing.
Result<Plan> plan_from_json(const nlohmann::json& json);
std::string plan_id(const Plan& plan);

}  // namespace motley
