#include "worker/train/rank_parts.h"

#include <algorithm>

#include "core/debug_env.h"
#include "core/holdings.h"
#include "core/rank_memory.h"
#include "core/spec/names.h"
#include "core/spec/precisions.h"
#include "core/spec/profile_key.h"
#include "core/units.h"
#include "worker/train/agreement.h"
#include "worker/train/rank_memory.h"
#include "worker/train/world.h"

namespace motley {
namespace {

Result<Unit> check_attempt(const Attempt& attempt, int ranks) {
  MOTLEY_TRY_VOID(validate_for(attempt.plan, attempt.job));
  MOTLEY_TRY_VOID(check_precisions(attempt.fleet, attempt.job));
  MOTLEY_TRY_VOID(check_told_apart(attempt.fleet));
  return check_world(attempt.plan, ranks);
}

Result<Unit> check_memory(const Attempt& attempt, Rank rank, const RankParts& parts,
                          const DeviceIslands& islands) {
  const Device& device = *parts.device;
  const Bytes limit = parts.memory_limit;
  const MemoryEstimate needed =
      estimate_rank(attempt.job, attempt.plan, rank, traits_of(device), islands);
  if (needed.total() <= limit) return Unit{};
  return fail(ErrorCode::kOutOfMemory, parts.spec.id + " needs " + format_bytes(needed.total()) +
                                           " for its part, more than its limit of " +
                                           format_bytes(limit) +
                                           ": plan a smaller micro-batch or part for it");
}

/// The device, and how much memory there is for this rank.
Result<std::unique_ptr<RankParts>> open_parts(const Attempt& attempt, Communicator& world) {
  const Plan& plan = attempt.plan;
  const Rank rank(world.rank());
  const RankPlacement& place = plan.ranks[static_cast<size_t>(rank.value())];
  const DeviceSpec* spec = attempt.fleet.find(place.device);
  if (spec == nullptr)
    return fail(ErrorCode::kNoDevice, "the fleet has no device " + place.device + " of the plan");
  const auto on_memory =
      std::count_if(plan.ranks.begin(), plan.ranks.end(), [&](const RankPlacement& other) {
        const DeviceSpec* device = attempt.fleet.find(other.device);
        return device != nullptr && takes_same_memory(*spec, *device);
      });
  const TrainSpec& train = attempt.job.train;
  auto parts =
      std::make_unique<RankParts>(*spec, share_of(plan, rank, train.eval.samples), attempt);
  const StagePlan& stage = stage_of(plan, role_of(plan, rank));
  const Precision precision = precision_allowed(attempt.job, *spec, stage.precision);
  if (stage.precision != precision)
    return fail(ErrorCode::kInvalidSpec, "the plan has " + spec->id + " compute in " +
                                             spec_name(stage.precision) + ", the job in " +
                                             spec_name(precision));
  MOTLEY_TRY(parts->device, open_device_for(attempt.job, *spec, precision));
  parts->memory_limit = memory_limit_of(*spec, *parts->device, static_cast<int>(on_memory));
  return parts;
}

/// Stands for a device with less memory than it says (HACKING.md).
bool oom_if_told(int largest_micro_batch, int rank) {
  for (int most = 0; most < largest_micro_batch; ++most)
    if (failpoint("oom_above_micro_batch_" + std::to_string(most), rank)) return true;
  return false;
}

Result<Unit> load_data(const Attempt& attempt, RankParts* parts) {
  MOTLEY_TRY(parts->corpus, Corpus::load(attempt.job.data, attempt.job.model.context));
  return Unit{};
}

Result<Unit> build_engine(const Attempt& attempt, const DeviceIslands& islands, Communicator& world,
                          RankParts* parts) {
  const Plan& plan = attempt.plan;
  const Rank rank(world.rank());
  const StagePlan& stage = stage_of(plan, role_of(plan, rank));
  if (stage.ranks.size() > 1) {
    std::vector<int> ranks;
    for (const Rank member : stage.ranks) ranks.push_back(member.value());
    parts->group = std::make_unique<StageGroup>(world.group(ranks), parts->sections);
  }
  EngineOptions options = engine_options(attempt.job, plan, rank, islands);
  MOTLEY_TRY_VOID(check_memory(attempt, rank, *parts, islands));
  if (oom_if_told(parts->share.largest(), rank.value()))
    return fail(ErrorCode::kOutOfMemory, "out of memory, as the failpoint says");
  options.account = &parts->memory;
  options.group = parts->group.get();
  MOTLEY_TRY(parts->engine, Engine::create(*parts->device, options));
  return Unit{};
}

Result<Unit> open_average(const Attempt& attempt, Communicator& world, RankParts* parts) {
  MOTLEY_TRY(parts->average,
             GroupAverage::open(attempt.plan, attempt.job.model, world, *parts->engine,
                                parts->device->host_accessible(), parts->memory));
  return Unit{};
}

/// How gradients are summed, and weights go round.
Result<Unit> open_sums(const Attempt& attempt, OpenIslands islands, Communicator& world,
                       RankParts* parts) {
  const ModelSpec& model = attempt.job.model;
  const int element_bytes = parts->engine->element_bytes();
  if (trains_apart(attempt.plan)) MOTLEY_TRY_VOID(open_average(attempt, world, parts));
  MOTLEY_TRY(parts->slices,
             SliceExchange::open(
                 parts->part.plan, model, parts->peers ? *parts->peers : world,
                 {gradient_element_bytes(attempt.job.train.numerics, element_bytes), element_bytes},
                 parts->memory, islands.islands));
  const CodecSpec& codec = attempt.plan.compression.codec;
  if (parts->slices->compresses() && hides_magnitudes(codec.kind) && warmup_steps(codec) > 0)
    parts->engine->hold_second_moment_after(warmup_steps(codec));
  if (!islands.devices) return Unit{};
  MOTLEY_TRY(parts->island,
             IslandSum::open(std::move(islands), attempt.plan.shard_optimizer, *parts->slices));
  return Unit{};
}

}  // namespace

Result<Unit> check_world(const Plan& plan, int ranks) {
  if (plan.world_size() == ranks) return Unit{};
  return fail(ErrorCode::kUsage, "the plan is for " + std::to_string(plan.world_size()) +
                                     " ranks, started were " + std::to_string(ranks) +
                                     ": give mpirun the hostfile of `motley export hostfile`");
}

Result<std::unique_ptr<RankParts>> build_rank(const Attempt& attempt, Communicator& world) {
  if (const auto checked = check_attempt(attempt, world.size()); !checked)
    return joint_failure(world, checked.error().code, checked.error().message);
  auto parts = open_parts(attempt, world);
  Result<Unit> opened = Unit{};
  if (!parts) opened = fail(parts.error());
  MOTLEY_TRY_VOID(all_succeeded(world, opened));
  MOTLEY_TRY_VOID(all_succeeded(world, load_data(attempt, parts->get())));
  const bool exact = attempt.job.train.numerics == Numerics::kExact;
  MOTLEY_TRY_VOID(
      all_alike(world, {.host = system_host_name(),
                        .program = code_version(),
                        .communicator = world.description(),
                        .arithmetic_class = exact ? (*parts)->device->arithmetic_class() : "",
                        .data_hash = (*parts)->corpus.hash()}));
  RankParts& own = **parts;
  own.part = group_part(attempt.plan, attempt.job.model, Rank(world.rank()));
  if (trains_apart(attempt.plan)) own.peers = world.group(own.part.ranks);
  MOTLEY_TRY(OpenIslands islands, open_islands(device_islands(own.part.plan, attempt.fleet),
                                               own.peers ? *own.peers : world, *own.device));
  MOTLEY_TRY_VOID(
      all_succeeded(world, build_engine(attempt, islands.islands, world, parts->get())));
  MOTLEY_TRY_VOID(open_sums(attempt, std::move(islands), world, parts->get()));
  return parts;
}

}  // namespace motley
