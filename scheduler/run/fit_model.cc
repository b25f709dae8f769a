#include "scheduler/run/fit_model.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "core/model.h"
#include "core/spec/names.h"
#include "core/spec/precisions.h"
#include "planner/costs/catalog_profile.h"
#include "planner/pipelines/recompute_less.h"
#include "scheduler/report/table.h"
#include "scheduler/run/count_memory.h"
#include "scheduler/run/simulated_plan.h"

namespace motley {
namespace {

constexpr const char* kNoHost = "fit";
/// For which the oldest toolkit of the presets compiles (HACKING.md).
constexpr double kLeastCapability = 7.0;

constexpr MemoryWays kRecomputes{.recompute = true}, kKeepsInHost{.state = {.host = true}},
    kDoesBoth{.recompute = true, .state = {.host = true}};

int grain_of_fit(const JobSpec& job) { return job.train.grain.value_or(1); }

int grains_of_fit(const JobSpec& job) {
  return (job.train.global_batch + grain_of_fit(job) - 1) / grain_of_fit(job);
}

DeviceSpec gpu(const std::string& type, size_t number) {
  DeviceSpec device;
  device.host = kNoHost;
  device.id = device.host + "/" + std::to_string(number);
  device.kind = DeviceKind::kCuda;
  device.type = type;
  device.uuid = "GPU-" + std::to_string(number);
  return device;
}

/// Plans for GPUs that are alike, whichever. What the job asks of types does not count: stages say
/// it.
class PipelineCounter {
 public:
  explicit PipelineCounter(const JobSpec& job) : job_(job) {
    job_.train.precision_by_type.clear();
    job_.data = {};
  }

  /// Of a pipeline.
  Result<std::vector<MemoryParts>> parts(const std::vector<FitStage>& stages,
                                         const MemoryWays& ways = {}) {
    FleetSpec fleet;
    Plan plan = empty_plan(stages.size(), stages.front().precision, &fleet);
    plan.replicas.push_back({{}, plan.grain, plan.grain_count()});
    for (size_t s = 0; s < stages.size(); ++s) {
      plan.ranks[s].host_optimizer = ways.state.host;
      StagePlan stage = stage_on(static_cast<int>(s), stages[s]);
      for (LayerIndex layer = stage.first_layer; ways.recompute && layer <= stage.last_layer;
           ++layer)
        stage.recompute.push_back(is_block(layer, job_.model) ? Recompute::kBlock
                                                              : Recompute::kNone);
      plan.replicas.front().stages.push_back(std::move(stage));
    }
    plan.owners = even_ownership(plan, job_.model);
    return count_memory_parts(plan, job_, fleet);
  }

  /// Of the whole model on one.
  Result<Bytes> whole(Precision precision, const MemoryWays& ways) {
    MOTLEY_TRY(const auto counted, parts({{0, layer_count(job_.model) - 1, precision}}, ways));
    return counted.front().total;
  }

  /// Of whole replicas that share the optimizer's state, what the one that needs most does.
  Result<Bytes> sharded(int replicas, Precision precision) {
    FleetSpec fleet;
    Plan plan = empty_plan(static_cast<size_t>(replicas), precision, &fleet);
    plan.shard_optimizer = true;
    for (int rank = 0; rank < replicas; ++rank) {
      const int more = rank < plan.grain_count() % replicas ? 1 : 0;
      plan.replicas.push_back({{stage_on(rank, {0, layer_count(job_.model) - 1, precision})},
                               plan.grain,
                               plan.grain_count() / replicas + more});
    }
    plan.owners = even_ownership(plan, job_.model);
    MOTLEY_TRY(const auto counted, count_memory_parts(plan, job_, fleet));
    Bytes most{0};
    for (const MemoryParts& rank : counted) most = std::max(most, rank.total);
    return most;
  }

  CountStages totals(const MemoryWays& ways = {}) {
    return [this, ways](const std::vector<FitStage>& stages) -> Result<std::vector<Bytes>> {
      MOTLEY_TRY(const auto counted, parts(stages, ways));
      std::vector<Bytes> bytes;
      for (const MemoryParts& rank : counted) bytes.push_back(rank.total);
      return bytes;
    };
  }

 private:
  /// On so many GPUs.
  Plan empty_plan(size_t ranks, Precision precision, FleetSpec* fleet) {
    job_.train.precision = job_.train.numerics == Numerics::kExact ? precision : Precision::kAuto;
    Plan plan;
    plan.numerics = job_.train.numerics;
    plan.global_batch = job_.train.global_batch;
    plan.grain = grain_of_fit(job_);
    for (size_t rank = 0; rank < ranks; ++rank) {
      fleet->devices.push_back(gpu(kNoHost, rank));
      plan.ranks.push_back({fleet->devices.back().id, kNoHost, kNoHost});
    }
    return plan;
  }

  static StagePlan stage_on(int rank, const FitStage& layers) {
    StagePlan stage;
    stage.first_layer = layers.first;
    stage.last_layer = layers.last;
    stage.precision = layers.precision;
    stage.ranks = {Rank(rank)};
    stage.shares = {1.0};
    return stage;
  }

  JobSpec job_;
};

/// Why it is not to be thought of; empty: it may be.
std::string why_left_out(const JobSpec& job, const DeviceSpec& device,
                         const CatalogDevice& figures) {
  if (figures.compute_capability > 0 && figures.compute_capability < kLeastCapability)
    return "no build computes on compute capability " + format_fixed(figures.compute_capability, 1);
  if (const std::string demand = unmet_demand(device, job); !demand.empty()) return demand;
  if (!lacks_precision(job, device) && precisions_to_simulate(job, device, &figures)) return "";
  return "it lacks " + spec_name(precision_wanted(job, device.type));
}

FitType type_to_fit(const CatalogDevice& figures, std::vector<Precision> precisions) {
  FitType type;
  type.type = figures.type;
  type.memory = figures.memory;
  type.usable = Bytes(static_cast<int64_t>(
      std::floor(static_cast<double>(figures.memory.value()) * (1 - kMemoryHeadroom))));
  type.price_per_hour = figures.price_per_hour;
  for (const Precision precision : precisions)
    type.flops_per_second = std::max(type.flops_per_second, figures.tflops.in(precision));
  type.precisions = std::move(precisions);
  return type;
}

/// What of the catalog the job admits, and what not.
Result<Unit> choose_types(const JobSpec& job, const DeviceCatalog& catalog, ModelFit* fit) {
  for (const CatalogDevice& figures : catalog.devices) {
    DeviceSpec device = gpu(figures.type, 0);
    device.memory = figures.memory;
    if (std::string why = why_left_out(job, device, figures); !why.empty()) {
      fit->left_out.emplace_back(figures.type, std::move(why));
      continue;
    }
    MOTLEY_TRY(auto precisions, precisions_to_simulate(job, device, &figures));
    fit->types.push_back(type_to_fit(figures, std::move(precisions)));
  }
  if (!fit->types.empty()) return Unit{};
  const std::string none = "no device of " + catalog.source + " may train it";
  if (fit->left_out.empty()) return fail(ErrorCode::kNoPlan, none);
  const auto& [type, why] = fit->left_out.back();
  return fail(ErrorCode::kNoPlan, none + ", not even " + type + " (" + why + ")",
              place_of(job, "resources.devices"));
}

Bytes with_headroom(Bytes needs) {
  return Bytes(
      static_cast<int64_t>(std::ceil(static_cast<double>(needs.value()) / (1 - kMemoryHeadroom))));
}

Result<std::vector<FitNeed>> needs_of(const std::vector<FitType>& types, int layers,
                                      PipelineCounter& counter) {
  std::vector<FitNeed> needs;
  std::set<Precision> known;
  for (const FitType& type : types)
    for (const Precision precision : type.precisions) {
      if (!known.insert(precision).second) continue;
      MOTLEY_TRY(const auto counted, counter.parts({{0, layers - 1, precision}}));
      const MemoryParts& parts = counted.front();
      needs.push_back({precision, parts.parameters, parts.gradients, parts.optimizer,
                       parts.activations, parts.total, with_headroom(parts.total), parts.host});
    }
  std::sort(needs.begin(), needs.end(),
            [](const FitNeed& a, const FitNeed& b) { return a.precision < b.precision; });
  return needs;
}

/// Of parameters, gradients and state no pipeline keeps less than this; a tied tensor twice.
Bytes least_kept(const std::vector<FitNeed>& needs, const MemoryWays& ways = {}) {
  Bytes least{INT64_MAX};
  for (const FitNeed& need : needs)
    least = std::min(
        least, need.parameters + need.gradients + (ways.state.host ? Bytes(0) : need.optimizer));
  return least;
}

/// Takes out of the fleet what is not to be thought of. What the job's demands keep out stays for
/// admitted(), which says so in the job's words; what has no figures for simulated_profile().
void leave_out(const JobSpec& job, const DeviceCatalog& catalog, FleetSpec* fleet, FleetFit* fit) {
  std::erase_if(fleet->devices, [&](const DeviceSpec& device) {
    if (device.kind != DeviceKind::kCuda || device.paced || device.share) return false;
    if (!unmet_demand(device, job).empty()) return false;
    const auto figures = find_figures(catalog, device);
    if (!figures) return false;
    std::string why = why_left_out(job, device, **figures);
    if (why.empty()) return false;
    fit->left_out.push_back({device.id, device.type, std::move(why)});
    return true;
  });
}

/// Why a smallest mix need not be looked for; empty: it is.
std::string why_not_asked(const JobSpec& job, const ModelFit& fit, bool unlike) {
  if (fit.most_devices < 2) return "the job admits one device";
  if (!unlike) return "";
  if (!job.devices.mix) return "the job forbids mixing";
  return fit.types.size() < 2 ? "only one type is admitted" : "";
}

/// The rank with the least of its memory left.
void note_tightest(const Plan& plan, FleetFit* fleet) {
  const auto left = [](const RankPrediction& rank) {
    return static_cast<double>(rank.memory.value()) /
           static_cast<double>(rank.memory_limit.value());
  };
  const auto& ranks = plan.prediction.ranks;
  const auto tightest = std::max_element(
      ranks.begin(), ranks.end(),
      [&](const RankPrediction& a, const RankPrediction& b) { return left(a) < left(b); });
  fleet->device = plan.ranks[static_cast<size_t>(tightest->rank.value())].device;
  fleet->needs = tightest->memory;
  fleet->memory = tightest->memory_limit;
  fleet->devices_used = plan.world_size();
}

Bytes memory_of(const ModelFit& fit, const FitShards& found) {
  return fit.types[found.type].memory;
}

/// What does with less because something lies or is computed elsewhere, as far as the job allows
/// it.
Result<Unit> find_smaller(const JobSpec& job, PipelineCounter& counter, MemoryFit* found,
                          ModelFit* fit) {
  const auto sharded = [&](int replicas, Precision precision) {
    return counter.sharded(replicas, precision);
  };
  if (job.parallel.shard_optimizer != ShardOptimizer::kOff) {
    const int most = std::min(fit->most_devices, grains_of_fit(job));
    MOTLEY_TRY(fit->sharded, found->smallest_sharded(most, sharded));
  }
  const auto smallest_with = [&](const MemoryWays& ways) {
    return found->smallest_otherwise(
        [&counter, ways](int, Precision precision) { return counter.whole(precision, ways); });
  };
  const bool recompute = job.parallel.recompute, in_host = job.parallel.host_optimizer;
  if (recompute) {
    MOTLEY_TRY(fit->recomputing, smallest_with(kRecomputes));
  }
  if (in_host) {
    MOTLEY_TRY(fit->in_host, smallest_with(kKeepsInHost));
  }
  if (!recompute || !in_host) return Unit{};
  MOTLEY_TRY(fit->saving_both, smallest_with(kDoesBoth));
  for (const auto& other : {fit->recomputing, fit->in_host})
    if (other && fit->saving_both && memory_of(*fit, *other) <= memory_of(*fit, *fit->saving_both))
      fit->saving_both.reset();
  return Unit{};
}

bool is_smaller(const FitMix& mix, const FitMix& than) {
  return std::pair(mix.stages.size(), mix.memory) < std::pair(than.stages.size(), than.memory);
}

/// A mix smaller than `mix`, of the fewest ways.
Result<Unit> find_saving_mix(MemoryFit* found, const MemoryWays& ways, bool unlike,
                             const ModelFit& fit, std::optional<SavingMix>* smallest) {
  const auto& plain = unlike ? fit.unlike : fit.like;
  MOTLEY_TRY(auto mix, found->smallest_mix(unlike, fit.most_devices));
  if (!mix || (plain && !is_smaller(*mix, *plain))) return Unit{};
  if (!*smallest || is_smaller(*mix, (*smallest)->mix)) *smallest = {*std::move(mix), ways};
  return Unit{};
}

Result<Unit> find_saving_mixes(const JobSpec& job, PipelineCounter& counter, ModelFit* fit) {
  for (const MemoryWays& ways : {kRecomputes, kKeepsInHost, kDoesBoth}) {
    if ((ways.recompute && !job.parallel.recompute) ||
        (ways.state.host && !job.parallel.host_optimizer))
      continue;
    MemoryFit found(fit->types, layer_count(job.model), grains_of_fit(job), counter.totals(ways),
                    least_kept(fit->needs, ways));
    if (fit->like_not_asked.empty())
      MOTLEY_TRY_VOID(find_saving_mix(&found, ways, false, *fit, &fit->like_saving));
    if (fit->unlike_not_asked.empty())
      MOTLEY_TRY_VOID(find_saving_mix(&found, ways, true, *fit, &fit->unlike_saving));
  }
  return Unit{};
}

}  // namespace

Result<ModelFit> fit_model(const JobSpec& job, const DeviceCatalog& catalog) {
  ModelFit fit;
  MOTLEY_TRY_VOID(check_types_known(catalog, job));
  MOTLEY_TRY_VOID(choose_types(job, catalog, &fit));
  PipelineCounter counter(job);
  const int layers = layer_count(job.model);
  fit.job = job.name;
  fit.catalog = catalog.source;
  fit.parameters = parameter_count(job.model);
  fit.micro_batch = grain_of_fit(job);
  fit.headroom = kMemoryHeadroom;
  fit.most_devices = kMostFitDevices;
  if (job.devices.count) fit.most_devices = std::min(fit.most_devices, job.devices.count->high);
  MOTLEY_TRY(fit.needs, needs_of(fit.types, layers, counter));
  MemoryFit found(fit.types, layers, grains_of_fit(job), counter.totals(), least_kept(fit.needs));
  for (size_t i = 0; i < fit.types.size(); ++i) {
    MOTLEY_TRY(const auto holds, found.holds_whole(i));
    fit.holds.push_back(holds.has_value());
  }
  MOTLEY_TRY(fit.device, found.smallest_device());
  fit.like_not_asked = why_not_asked(job, fit, false);
  fit.unlike_not_asked = why_not_asked(job, fit, true);
  MOTLEY_TRY(fit.like, found.smallest_mix(false, fit.most_devices));
  MOTLEY_TRY_VOID(find_smaller(job, counter, &found, &fit));
  if (fit.unlike_not_asked.empty()) {
    MOTLEY_TRY(fit.unlike, found.smallest_mix(true, fit.most_devices));
  }
  MOTLEY_TRY_VOID(find_saving_mixes(job, counter, &fit));
  return fit;
}

Result<FleetFit> fit_fleet(const JobSpec& job, const FleetSpec& whole,
                           const DeviceCatalog& catalog) {
  FleetFit fit{.source = whole.source};
  FleetSpec fleet = whole;
  leave_out(job, catalog, &fleet, &fit);
  if (fleet.devices.empty() && !fit.left_out.empty()) {
    fit.why_not = "none of its devices may train it";
    return fit;
  }
  const auto plan = [&]() -> Result<Plan> {
    MOTLEY_TRY(const FleetSpec chosen, admitted(fleet, job));
    MOTLEY_TRY_VOID(check_parallel(fleet, job));
    MOTLEY_TRY_VOID(check_precisions(chosen, job));
    MOTLEY_TRY(SimulatedPlan found, plan_simulated(job, fleet, [&](const FleetSpec& some) {
                 return simulated_profile(job, some, catalog);
               }));
    return std::move(found.plan);
  }();
  if (plan) {
    note_tightest(*plan, &fit);
    return fit;
  }
  const ErrorCode code = plan.error().code;
  if (code != ErrorCode::kNoPlan && code != ErrorCode::kNoDevice) return fail(plan.error());
  fit.why_not = plan.error().to_string();
  return fit;
}

}  // namespace motley
