#include "core/plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/holdings.h"
#include "core/json_place.h"
#include "core/spec/names.h"
#include "core/spec/profile_key.h"
#include "core/sync_groups.h"
#include "core/units.h"

namespace motley {
namespace {

std::string replica_at(size_t replica) { return "/replicas/" + std::to_string(replica); }
std::string stage_at(size_t replica, size_t stage) {
  return replica_at(replica) + "/stages/" + std::to_string(stage);
}

Result<Unit> check_batch(const Plan& plan) {
  if (plan.global_batch < 1) return invalid_at("/global_batch", "must be at least 1");
  if (plan.grain < 1 || plan.grain > plan.global_batch) {
    return invalid_at("/grain", "must be between 1 and global_batch");
  }
  int64_t grains = 0;
  for (size_t i = 0; i < plan.replicas.size(); ++i) {
    const ReplicaPlan& replica = plan.replicas[i];
    if (replica.grains < 1) return invalid_at(replica_at(i) + "/grains", "must be at least 1");
    if (replica.micro_batch < 1 || replica.micro_batch % plan.grain != 0) {
      return invalid_at(replica_at(i) + "/micro_batch", std::to_string(replica.micro_batch) +
                                                            " is not a multiple of the grain, " +
                                                            std::to_string(plan.grain));
    }
    grains += replica.grains;
  }
  if (grains == plan.grain_count()) return Unit{};
  return invalid_at("/replicas", "they have " + std::to_string(grains) +
                                     " grains; the global batch is " +
                                     std::to_string(plan.grain_count()));
}

Result<Unit> check_devices(const Plan& plan) {
  if (plan.ranks.empty()) return invalid_at("/ranks", "there are none");
  std::set<std::string> devices;
  for (size_t i = 0; i < plan.ranks.size(); ++i) {
    if (!devices.insert(plan.ranks[i].device).second) {
      return invalid_at("/ranks/" + std::to_string(i),
                        "device " + plan.ranks[i].device + " drives two ranks");
    }
  }
  return Unit{};
}

Result<Unit> check_ranks(const Plan& plan) {
  std::set<Rank> used;
  for (size_t i = 0; i < plan.replicas.size(); ++i) {
    for (size_t j = 0; j < plan.replicas[i].stages.size(); ++j) {
      for (const Rank rank : plan.replicas[i].stages[j].ranks) {
        const std::string name = "rank " + std::to_string(rank.value());
        const std::string where = stage_at(i, j) + "/ranks";
        if (rank.value() < 0 || rank.value() >= plan.world_size()) {
          return invalid_at(where, name + " does not exist");
        }
        if (!used.insert(rank).second) return invalid_at(where, name + " is used twice");
      }
    }
  }
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    if (used.contains(Rank(rank))) continue;
    const std::string number = std::to_string(rank);
    return invalid_at("/ranks/" + number, "rank " + number + " has no work");
  }
  return Unit{};
}

Result<Unit> check_shares(const StagePlan& stage, const std::string& where) {
  if (stage.ranks.empty()) return invalid_at(where, "the stage has no ranks");
  if (stage.shares.size() != stage.ranks.size()) {
    return invalid_at(where + "/shares", "the stage needs one share for each rank");
  }
  double sum = 0;
  for (const double share : stage.shares) {
    if (!(share > 0)) return invalid_at(where + "/shares", "a share is not positive");
    sum += share;
  }
  if (std::abs(sum - 1) > 1e-9) return invalid_at(where + "/shares", "they do not sum to 1");
  return Unit{};
}

Result<Unit> check_stages(const Plan& plan, const ModelSpec& model) {
  if (plan.replicas.empty()) return invalid_at("/replicas", "there are none");
  for (size_t i = 0; i < plan.replicas.size(); ++i) {
    LayerIndex next = 0;
    const std::vector<StagePlan>& stages = plan.replicas[i].stages;
    if (stages.empty()) return invalid_at(replica_at(i) + "/stages", "the replica has no stages");
    for (size_t j = 0; j < stages.size(); ++j) {
      const std::string where = stage_at(i, j);
      MOTLEY_TRY_VOID(check_shares(stages[j], where));
      if (stages[j].first_layer != next) {
        return invalid_at(where + "/first_layer", "the stage begins at layer " +
                                                      std::to_string(stages[j].first_layer) +
                                                      " where " + std::to_string(next) + " is due");
      }
      if (stages[j].last_layer < stages[j].first_layer) {
        return invalid_at(where + "/last_layer", "the stage has no layers");
      }
      next = stages[j].last_layer + 1;
    }
    if (next != layer_count(model)) {
      return invalid_at(replica_at(i) + "/stages", "they have " + std::to_string(next) + " of " +
                                                       std::to_string(layer_count(model)) +
                                                       " layers (embedding, blocks, head)");
    }
  }
  return Unit{};
}

/// Every rank of a stage computes something of every layer there.
Result<Unit> check_members(const Plan& plan, const ModelSpec& model) {
  for (size_t i = 0; i < plan.replicas.size(); ++i) {
    for (size_t j = 0; j < plan.replicas[i].stages.size(); ++j) {
      const StagePlan& stage = plan.replicas[i].stages[j];
      if (!stage.recompute.empty() && static_cast<int>(stage.recompute.size()) != stage.layers()) {
        return invalid_at(stage_at(i, j) + "/recompute", "needs one word for each of the " +
                                                             std::to_string(stage.layers()) +
                                                             " layers, or none at all");
      }
      for (size_t member = 0; member < stage.ranks.size(); ++member) {
        const char* lack = lack_of(model, stage, static_cast<int>(member));
        if (lack == nullptr) continue;
        return invalid_at(stage_at(i, j) + "/shares",
                          "rank " + std::to_string(stage.ranks[member].value()) + " gets " + lack);
      }
    }
  }
  return Unit{};
}

std::string owner_at(const Plan& plan, const Ownership& owner) {
  return "/owners/" + std::to_string(&owner - plan.owners.data());
}

Result<Unit> check_held(const Plan& plan, const Ownership& owner,
                        const std::vector<Holding>& holdings) {
  for (const Holding& holding : holdings)
    if (holding.tensor.name == owner.tensor && contains(holding.slice, owner.slice)) return Unit{};
  return invalid_at(owner_at(plan, owner), "rank " + std::to_string(owner.owner.value()) +
                                               " owns a slice of " + owner.tensor +
                                               " that it does not hold");
}

Result<Unit> check_owners_hold(const Plan& plan, const ModelSpec& model) {
  std::vector<std::vector<Holding>> holdings(plan.ranks.size());
  for (size_t rank = 0; rank < holdings.size(); ++rank) {
    const Role role = role_of(plan, Rank(static_cast<int>(rank)));
    holdings[rank] = holdings_of(model, stage_of(plan, role), role.member);
  }
  for (const Ownership& owner : plan.owners)
    MOTLEY_TRY_VOID(check_held(plan, owner, holdings[static_cast<size_t>(owner.owner.value())]));
  return Unit{};
}

Result<Unit> check_owners(const Plan& plan, const ModelSpec& model) {
  std::map<std::string, std::vector<Slice>> slices;
  for (const Ownership& owner : plan.owners) {
    if (owner.owner.value() < 0 || owner.owner.value() >= plan.world_size()) {
      return invalid_at(owner_at(plan, owner) + "/rank",
                        "the owner of " + owner.tensor + ", rank " +
                            std::to_string(owner.owner.value()) + ", does not exist");
    }
    slices[owner.tensor].push_back(owner.slice);
  }
  for (const LogicalTensor& tensor : logical_tensors(model)) {
    const auto found = slices.find(tensor.name);
    if (found == slices.end()) return invalid_at("/owners", "nobody owns " + tensor.name);
    if (const auto tiled = check_tiles(tensor.name, tensor.shape, found->second); !tiled) {
      return invalid_at("/owners", tiled.error().message);
    }
    slices.erase(found);
  }
  if (!slices.empty()) {
    return invalid_at("/owners",
                      "the model has no tensor " + slices.begin()->first + ", which has an owner");
  }
  return Unit{};
}

Result<Unit> check_memory(const Plan& plan) {
  for (const RankPrediction& rank : plan.prediction.ranks) {
    if (rank.rank.value() < 0 || rank.rank.value() >= plan.world_size()) {
      return invalid_at("/prediction/ranks", "one is of rank " + std::to_string(rank.rank.value()) +
                                                 ", which does not exist");
    }
    if (rank.memory > rank.memory_limit) {
      const RankPlacement& place = plan.ranks[static_cast<size_t>(rank.rank.value())];
      return invalid_at("/ranks/" + std::to_string(rank.rank.value()),
                        place.device + " needs " + format_bytes(rank.memory) +
                            " for its part; its limit is " + format_bytes(rank.memory_limit));
    }
  }
  return Unit{};
}

/// What `exact` asks: one arithmetic for every sample, whoever computes it.
Result<Unit> check_exact(const Plan& plan) {
  for (size_t i = 0; i < plan.replicas.size(); ++i) {
    const ReplicaPlan& replica = plan.replicas[i];
    if (replica.micro_batch != plan.grain) {
      return invalid_at(replica_at(i) + "/micro_batch",
                        "numerics: exact needs micro-batches of one grain");
    }
    for (size_t j = 0; j < replica.stages.size(); ++j) {
      if (replica.stages[j].precision != plan.replicas[0].stages[0].precision)
        return invalid_at(stage_at(i, j) + "/precision", "numerics: exact needs one precision");
      if (replica.stages[j].ranks.size() == 1) continue;
      return invalid_at(stage_at(i, j) + "/ranks",
                        "numerics: exact excludes tensor parallelism, where the bits depend on the "
                        "shares: give the stage one rank, or train with numerics: fast");
    }
  }
  return Unit{};
}

/// The job says what may be done to gradients; with auto, the plan.
Result<Unit> check_compression(const Plan& plan, const JobSpec& job) {
  const CodecSpec& wanted = job.parallel.compress;
  const CodecSpec& planned = plan.compression.codec;
  if (job.train.numerics == Numerics::kExact && plan.compression.on())
    return invalid_at("/compression/codec", "numerics: exact excludes compression");
  if (wanted.kind == CodecKind::kAuto || planned == wanted) return Unit{};
  return invalid_at("/compression/codec", "the plan sends gradients with '" + to_text(planned) +
                                              "', the job has parallel.compress '" +
                                              to_text(wanted) + "'");
}

}  // namespace

double SearchRecord::gap() const {
  const double found = cost > 0 ? cost : step_seconds;
  const double bound = cost > 0 ? lower_bound_cost : lower_bound_step_seconds;
  return bound > 0 ? std::max(0.0, found / bound - 1) : 0;
}

bool is_cut(const Plan& plan) {
  return std::any_of(plan.replicas.begin(), plan.replicas.end(), [](const ReplicaPlan& replica) {
    return replica.stages.size() > 1 || replica.stages[0].ranks.size() > 1;
  });
}

const RankPrediction* Prediction::slowest() const {
  const auto slowest = std::max_element(
      ranks.begin(), ranks.end(),
      [](const auto& a, const auto& b) { return a.section_seconds() < b.section_seconds(); });
  return slowest == ranks.end() ? nullptr : &*slowest;
}

SampleRange samples_of(const Plan& plan, int replica) {
  int64_t first = 0;
  for (int i = 0; i < replica; ++i) first += plan.replicas[static_cast<size_t>(i)].grains;
  const int64_t grains = plan.replicas[static_cast<size_t>(replica)].grains;
  const int64_t from = std::min<int64_t>(first * plan.grain, plan.global_batch);
  const int64_t to = std::min<int64_t>((first + grains) * plan.grain, plan.global_batch);
  return {static_cast<int>(from), static_cast<int>(to - from)};
}

std::vector<SampleRange> micro_batches_of(const Plan& plan, int replica) {
  const SampleRange all = samples_of(plan, replica);
  const int micro_batch = plan.replicas[static_cast<size_t>(replica)].micro_batch;
  std::vector<SampleRange> ranges;
  for (int left = all.count; left > 0; left -= micro_batch) {
    ranges.push_back({all.first + all.count - left, std::min(micro_batch, left)});
  }
  return ranges;
}

Result<Unit> validate_cut(const Plan& plan, const ModelSpec& model) {
  MOTLEY_TRY_VOID(check_devices(plan));
  MOTLEY_TRY_VOID(check_stages(plan, model));
  MOTLEY_TRY_VOID(check_ranks(plan));
  MOTLEY_TRY_VOID(check_members(plan, model));
  MOTLEY_TRY_VOID(check_batch(plan));
  MOTLEY_TRY_VOID(check_memory(plan));
  MOTLEY_TRY_VOID(check_sync(plan));
  return plan.numerics == Numerics::kExact ? check_exact(plan) : Result<Unit>(Unit{});
}

Result<Unit> validate(const Plan& plan, const ModelSpec& model) {
  MOTLEY_TRY_VOID(validate_cut(plan, model));
  MOTLEY_TRY_VOID(check_owners(plan, model));
  return check_owners_hold(plan, model);
}

Result<Unit> check_made_for(const Plan& plan, const JobSpec& job) {
  if (plan.global_batch != job.train.global_batch)
    return invalid_at("/global_batch", "the plan is for " + std::to_string(plan.global_batch) +
                                           " samples a step, the job has train.global_batch " +
                                           std::to_string(job.train.global_batch));
  if (plan.numerics != job.train.numerics)
    return invalid_at("/numerics", "the plan is for " + spec_name(plan.numerics) +
                                       ", the job has train.numerics " +
                                       spec_name(job.train.numerics));
  if (job.train.grain && plan.grain != *job.train.grain)
    return invalid_at("/grain", "the plan has grains of " + std::to_string(plan.grain) +
                                    ", the job has train.grain " +
                                    std::to_string(*job.train.grain));
  if (!plan.job_key.empty() && plan.job_key != profile_job_key(job))
    return invalid_at("/job_key", "the plan is for another model, precision or optimizer");
  return Unit{};
}

Result<Unit> validate_for(const Plan& plan, const JobSpec& job) {
  MOTLEY_TRY_VOID(check_made_for(plan, job));
  if (plan.sync.across != job.parallel.sync.across)
    return invalid_at("/sync/across", "the plan averages every " +
                                          std::to_string(plan.sync.across) +
                                          " steps, the job has parallel.sync.across " +
                                          std::to_string(job.parallel.sync.across));
  MOTLEY_TRY_VOID(check_compression(plan, job));
  return validate(plan, job.model);
}

}  // namespace motley
