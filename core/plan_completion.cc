#include "core/plan_completion.h"

#include <set>

#include "core/json_place.h"
#include "core/spec/names.h"
#include "core/spec/precisions.h"
#include "core/spec/profile_key.h"

namespace motley {
namespace {

Result<Unit> place_ranks(const FleetSpec& fleet, Plan* plan) {
  for (size_t i = 0; i < plan->ranks.size(); ++i) {
    RankPlacement& rank = plan->ranks[i];
    const DeviceSpec* device = fleet.find(rank.device);
    if (device != nullptr && rank.host.empty()) rank.host = device->host;
    if (device != nullptr && rank.type.empty()) rank.type = device->type;
    if (device != nullptr && device->host == rank.host) continue;
    return invalid_at("/ranks/" + std::to_string(i),
                      "the plan uses device " + rank.device + ", which is not in " +
                          (fleet.source.empty() ? "the fleet" : fleet.source));
  }
  return Unit{};
}

/// As a hostfile lists them.
Result<Unit> check_hosts(const Plan& plan) {
  std::set<std::string> left;
  for (size_t i = 0; i < plan.ranks.size(); ++i) {
    if (i == 0 || plan.ranks[i].host == plan.ranks[i - 1].host) continue;
    left.insert(plan.ranks[i - 1].host);
    if (left.contains(plan.ranks[i].host)) {
      return invalid_at("/ranks/" + std::to_string(i),
                        "ranks of a host, here " + plan.ranks[i].host + ", must follow each other");
    }
  }
  return Unit{};
}

/// The stage's precision is what its devices compute in; `at` is its JSON pointer.
Result<Unit> set_precision(const JobSpec& job, const FleetSpec& fleet, const Plan& plan,
                           const std::string& at, StagePlan* stage) {
  for (const Rank rank : stage->ranks) {
    if (rank.value() < 0 || rank.value() >= plan.world_size()) continue;  // refused later
    const DeviceSpec& device = *fleet.find(plan.ranks[static_cast<size_t>(rank.value())].device);
    if (lacks_precision(job, device))
      return invalid_at("/ranks/" + std::to_string(rank.value()),
                        "device " + device.id + " (kind " + spec_name(device.kind) +
                            ") lacks train.precision " +
                            spec_name(precision_wanted(job, device.type)));
    const Precision computed = precision_allowed(job, device, stage->precision);
    if (stage->precision == Precision::kAuto) stage->precision = computed;
    if (stage->precision == computed) continue;
    return invalid_at(at + "/precision", "the stage is to compute in " +
                                             spec_name(stage->precision) + "; its device " +
                                             device.id + " computes this job in " +
                                             spec_name(computed));
  }
  return Unit{};
}

Result<Unit> set_precisions(const JobSpec& job, const FleetSpec& fleet, Plan* plan) {
  for (size_t i = 0; i < plan->replicas.size(); ++i)
    for (size_t j = 0; j < plan->replicas[i].stages.size(); ++j)
      MOTLEY_TRY_VOID(set_precision(
          job, fleet, *plan, "/replicas/" + std::to_string(i) + "/stages/" + std::to_string(j),
          &plan->replicas[i].stages[j]));
  return Unit{};
}

}  // namespace

std::string how_to_complete(const std::string& path) {
  return "this plan is not whole; `motley plan JOB --score " + path + " -o WHOLE` completes it";
}

Result<Unit> check_hosts_named(const Plan& plan, const std::string& path) {
  for (size_t i = 0; i < plan.ranks.size(); ++i)
    if (plan.ranks[i].host.empty())
      return invalid_at(
          "/ranks/" + std::to_string(i),
          "device " + plan.ranks[i].device + " has no host: " + how_to_complete(path));
  return Unit{};
}

Result<Unit> complete(const JobSpec& job, const FleetSpec& fleet, Plan* plan) {
  MOTLEY_TRY_VOID(check_made_for(*plan, job));
  MOTLEY_TRY_VOID(place_ranks(fleet, plan));
  MOTLEY_TRY_VOID(check_hosts(*plan));
  for (ReplicaPlan& replica : plan->replicas) {
    for (StagePlan& stage : replica.stages) {
      const size_t ranks = stage.ranks.size();
      if (stage.shares.empty()) stage.shares.assign(ranks, 1.0 / static_cast<double>(ranks));
    }
  }
  MOTLEY_TRY_VOID(set_precisions(job, fleet, plan));
  if (!plan->compression.on() && job.parallel.compress.kind != CodecKind::kAuto)
    plan->compression = {.codec = job.parallel.compress};
  if (plan->sync.across == 1) plan->sync.across = job.parallel.sync.across;
  if (plan->job_key.empty()) plan->job_key = profile_job_key(job);
  if (plan->owners.empty()) {
    MOTLEY_TRY_VOID(validate_cut(*plan, job.model));
    plan->owners = even_ownership(*plan, job.model);
  }
  MOTLEY_TRY_VOID(validate_for(*plan, job));
  plan->id = plan_id(*plan);
  return Unit{};
}

}  // namespace motley
