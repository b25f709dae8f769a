#include "worker/train/rank_parts.h"

#include <algorithm>

#include "core/spec/profile_key.h"
#include "worker/train/agreement.h"
#include "worker/train/world.h"

namespace motley {
namespace {

Result<Unit> check_attempt(const Attempt& attempt, int ranks) {
  MOTLEY_TRY_VOID(validate(attempt.plan, attempt.job.model));
  if (attempt.plan.world_size() != ranks)
    return fail(ErrorCode::kUsage, "the plan is for " + std::to_string(attempt.plan.world_size()) +
                                       " ranks, started were " + std::to_string(ranks) +
                                       ": give mpirun the hostfile of `motley export hostfile`");
  if (attempt.plan.global_batch != attempt.job.train.global_batch)
    return fail(ErrorCode::kInvalidSpec, "the plan is for another global_batch than the job");
  if (attempt.plan.numerics != attempt.job.train.numerics)
    return fail(ErrorCode::kInvalidSpec, "the plan is for other numerics than the job");
  return Unit{};
}

Result<std::unique_ptr<RankParts>> build_alone(const Attempt& attempt, int rank) {
  const auto& placements = attempt.plan.ranks;
  const RankPlacement& place = placements[static_cast<size_t>(rank)];
  const DeviceSpec* spec = attempt.fleet.find(place.device);
  if (spec == nullptr)
    return fail(ErrorCode::kNoDevice, "the fleet has no device " + place.device + " of the plan");
  const auto on_host =
      std::count_if(placements.begin(), placements.end(),
                    [&](const RankPlacement& other) { return other.host == place.host; });
  const TrainSpec& train = attempt.job.train;
  MOTLEY_TRY(RankShare share, share_of(attempt.plan, Rank(rank), train.eval.samples));
  MOTLEY_TRY(auto device, open_device_for(attempt.job, *spec));
  MOTLEY_TRY(Corpus corpus, Corpus::load(attempt.job.data, attempt.job.model.context));
  EngineOptions options;
  options.model = attempt.job.model;
  options.numerics = train.numerics;
  options.micro_batches = share.sizes;
  options.memory_limit = memory_limit_of(*spec, static_cast<int>(on_host));
  options.optimizer = train.optimizer;
  MOTLEY_TRY(auto engine, Engine::create(*device, options, train.seed));
  return std::make_unique<RankParts>(
      RankParts{.spec = *spec,
                .share = std::move(share),
                .device = std::move(device),
                .corpus = std::move(corpus),
                .engine = std::move(engine),
                .pacer = Pacer(*spec, attempt.fleet.clock, attempt.fleet.pace_flops)});
}

}  // namespace

Result<std::unique_ptr<RankParts>> build_rank(const Attempt& attempt, Communicator& world) {
  if (const auto checked = check_attempt(attempt, world.size()); !checked)
    return joint_failure(world, checked.error().code, checked.error().message);
  auto parts = build_alone(attempt, world.rank());
  Result<Unit> built = Unit{};
  if (!parts) built = fail(parts.error());
  MOTLEY_TRY_VOID(all_succeeded(world, built));
  const bool exact = attempt.job.train.numerics == Numerics::kExact;
  MOTLEY_TRY_VOID(
      all_alike(world, {.host = system_host_name(),
                        .program = code_version(),
                        .communicator = world.description(),
                        .arithmetic_class = exact ? (*parts)->device->arithmetic_class() : "",
                        .data_hash = (*parts)->corpus.hash()}));
  return parts;
}

}  // namespace motley
