#include "planner/plain/candidates.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/spec/precisions.h"
#include "core/units.h"
#include "planner/costs/layer_times.h"
#include "planner/costs/sums_beside.h"
#include "planner/plain/device_index.h"

namespace motley {
namespace {

Result<Unit> check_request(const PlanRequest& request) {
  const TrainSpec& train = request.job.train;
  const SourcePlace place{request.job.source, 0, 0};
  if (train.global_batch < 1) {
    return fail(ErrorCode::kInvalidSpec, "train.global_batch must be at least 1", place);
  }
  if (train.numerics == Numerics::kExact && !train.grain) {
    return fail(ErrorCode::kInvalidSpec,
                "train.numerics: exact needs train.grain, so that every plan computes alike",
                place);
  }
  if (train.grain && (*train.grain < 1 || *train.grain > train.global_batch)) {
    return fail(ErrorCode::kInvalidSpec,
                "train.grain must be between 1 and train.global_batch, " +
                    std::to_string(train.global_batch),
                place);
  }
  return Unit{};
}

/// The smallest micro-batch the rule allows, whether or not it fits.
const MemoryPoint* smallest_allowed(const DeviceProfile& device, const MicroBatchRule& rule) {
  for (const MemoryPoint& point : device.memory) {
    if (micro_batch_of(point.micro_batch, rule) != 0) return &point;
  }
  return nullptr;
}

/// `of`: the memory that the device has for it.
std::string lack_text(const DeviceProfile& device, const MicroBatchRule& rule,
                      const std::string& of) {
  const MemoryPoint* point = smallest_allowed(device, rule);
  if (point == nullptr) {
    return "its memory table has no micro-batch of whole grains of " + std::to_string(rule.grain);
  }
  return "needs " + format_bytes(point->total()) + " of " + of + " at micro-batch " +
         std::to_string(point->micro_batch);
}

/// As plans tell it of what they leave out.
std::string short_lack(const DeviceProfile& device, const MicroBatchRule& rule) {
  return lack_text(device, rule, format_bytes(usable_memory(device, rule.headroom)));
}

std::string remedy(const MicroBatchRule& rule) {
  return rule.grain > 1 ? "a smaller train.grain, a smaller model or more memory would help"
                        : "a smaller model or context, or more memory, would help";
}

Error nothing_fits(const std::vector<Candidate>& unfit, const MicroBatchRule& rule) {
  const Candidate* nearest = nullptr;
  double least = 0;  // what it needs, as a multiple of what it has
  for (const Candidate& candidate : unfit) {
    const MemoryPoint* point = smallest_allowed(*candidate.profile, rule);
    if (point == nullptr) continue;
    const double has =
        static_cast<double>(usable_memory(*candidate.profile, rule.headroom).value());
    const double needs = static_cast<double>(point->total().value()) / std::max(has, 1.0);
    if (nearest != nullptr && needs >= least) continue;
    nearest = &candidate;
    least = needs;
  }
  std::string text = "no device can hold the model";
  if (nearest != nullptr) {
    text += ": " + nearest->name() + ", the nearest, " + memory_lack(*nearest->profile, rule);
  } else if (rule.grain > 1) {
    text += " with micro-batches of whole grains of " + std::to_string(rule.grain);
  }
  SourcePlace place;
  if (nearest != nullptr && !nearest->spec->memory_written.empty()) {
    text += " (memory: " + nearest->spec->memory_written + ")";
    place = nearest->spec->memory_place;
  }
  return {ErrorCode::kNoPlan, text + "; " + remedy(rule), std::move(place)};
}

/// The key that decides how many devices there are at least.
std::string who_counts(const JobSpec& job) {
  return job.parallel.data ? "parallel.data" : "resources.devices.count";
}

Result<Unit> limit_count(const PlanRequest& request, Candidates* candidates) {
  const auto usable = static_cast<int>(candidates->devices.size());
  const CountRange count = request.job.devices.count.value_or(CountRange{});
  const std::optional<int>& replicas = request.job.parallel.data;
  const CountRange& others = request.whole_devices;
  candidates->least_devices = std::max({1, count.low, replicas.value_or(1), others.low});
  candidates->most_devices = std::min({usable, count.high, replicas.value_or(usable), others.high});
  candidates->why_no_more = others.high == candidates->most_devices
                                ? "with more devices each needs more memory for sums"
                                : who_counts(request.job) + (replicas ? " asks for " : " allows ") +
                                      std::to_string(candidates->most_devices);
  if (candidates->most_devices >= candidates->least_devices) return Unit{};
  const std::string wanted = std::to_string(candidates->least_devices);
  if (usable < candidates->least_devices)
    return fail(ErrorCode::kNoPlan,
                who_counts(request.job) + " asks for " + (replicas ? "" : "at least ") + wanted +
                    " devices; " + std::to_string(usable) + " can hold the model",
                place_of(request.job, who_counts(request.job)));
  return fail(ErrorCode::kNoPlan,
              "parallel.data asks for " + std::to_string(*replicas) +
                  " replicas; as many whole devices are not what resources.devices.count allows",
              place_of(request.job, "parallel.data"));
}

ReplicaPlan replica_of(const PlanRequest& request, const Candidate& candidate, Rank rank,
                       int grains) {
  ReplicaPlan replica;
  StagePlan& whole =
      replica.stages.emplace_back(StagePlan{0, layer_count(request.job.model) - 1, {rank}, {1.0}});
  whole.precision = precision_allowed(request.job, *candidate.spec, candidate.profile->precision);
  replica.grains = grains;
  return replica;
}

/// Of a plan over several hosts.
SumsBeside sums_of(const PlanRequest& request, const Plan& plan) {
  std::set<std::string> hosts;
  for (const RankPlacement& rank : plan.ranks) hosts.insert(rank.host);
  if (hosts.size() < 2) return {};
  const ReductionModel reduction(
      request.profile, gradient_bytes(request.job),
      shortened_links(compression_wanted(request.job), request.job.model), sync_wanted(request));
  return sums_of_whole(request, reduction.seconds(plan.world_size(), {hosts.begin(), hosts.end()}));
}

/// As the search has it.
void choose_micro_batches(const PlanRequest& request, Plan* plan) {
  const DeviceIndex index(request.fleet, request.profile);
  SumsBeside sums;
  if (sums_go_beside(request, *plan, index)) sums = sums_of(request, *plan);
  for (size_t i = 0; i < plan->replicas.size(); ++i) {
    ReplicaPlan& replica = plan->replicas[i];
    const auto rank = static_cast<size_t>(replica.stages[0].ranks[0].value());
    const DeviceProfile& device = *index.profile(plan->ranks[rank].device);
    const int samples = samples_of(*plan, static_cast<int>(i)).count;
    const DeviceSizes sizes = sizes_of(request, device, plan->grain, sums.seconds > 0);
    replica.micro_batch = sums.seconds > 0
                              ? micro_batch_beside(sizes, samples, sums)
                              : best_micro_batch(device, samples, sizes.sizes).micro_batch;
  }
}

}  // namespace

std::string usable_text(const DeviceProfile& device, double headroom) {
  return format_bytes(usable_memory(device, headroom)) + " (" + format_bytes(device.memory_limit) +
         " less " + std::to_string(std::lround(100 * headroom)) + " % headroom)";
}

std::string memory_lack(const DeviceProfile& device, const MicroBatchRule& rule) {
  return lack_text(device, rule, usable_text(device, rule.headroom));
}

Result<Candidates> find_candidates(const PlanRequest& request) {
  MOTLEY_TRY_VOID(check_request(request));
  MOTLEY_TRY(const FleetSpec fleet, admitted(request.fleet, request.job));
  MOTLEY_TRY_VOID(check_precisions(fleet, request.job));
  const MicroBatchRule rule = micro_batch_rule(request);
  Candidates candidates;
  std::vector<Candidate> unfit;
  const DeviceIndex index(fleet, request.profile);
  for (const DeviceSpec& spec : request.fleet.devices) {
    if (index.spec(spec.id) == nullptr) {
      candidates.left_out.push_back({spec.id, why_not_admitted(spec, request.job)});
      continue;
    }
    const Candidate candidate{&spec, index.profile(spec.id)};
    if (candidate.profile == nullptr) {
      return fail(ErrorCode::kInvalidSpec,
                  "the profile lacks " + candidate.name() + "; measure it with `motley profile`");
    }
    if (micro_batch_sizes(*candidate.profile, rule).empty()) {
      unfit.push_back(candidate);
      candidates.left_out.push_back({spec.id, "memory: " + short_lack(*candidate.profile, rule)});
      continue;
    }
    if (candidate.profile->curve("model") == nullptr) {
      return fail(ErrorCode::kInvalidSpec,
                  "the profile of " + candidate.name() + " has no curve \"model\"");
    }
    candidates.devices.push_back(candidate);
  }
  if (candidates.devices.empty()) return fail(nothing_fits(unfit, rule));
  MOTLEY_TRY_VOID(limit_count(request, &candidates));
  return candidates;
}

DeviceSizes sizes_of(const PlanRequest& request, const DeviceProfile& device, int grain,
                     bool beside) {
  DeviceSizes all{&device, micro_batch_sizes(device, micro_batch_rule(request, grain))};
  if (!beside || all.sizes.empty()) return all;
  const ModelSpec& model = request.job.model;
  const StagePlan whole{0, layer_count(model) - 1, {Rank(0)}, {1.0}};
  // Tables know shares of whole grains, too, where the step's last is short.
  const StepCut cut{request.job.train.global_batch, grain};
  const int largest = std::min(all.sizes.back(), cut.grains() * grain);
  all.backward.push_back(0);
  for (int size = 1; size <= largest; ++size)
    all.backward.push_back(device.curve("model")->seconds_at(size) -
                           forward_seconds(device, model, whole, size));
  return all;
}

Error too_few_grains(const JobSpec& job, int least_devices) {
  return {ErrorCode::kNoPlan,
          "the global batch has too few grains for the " + std::to_string(least_devices) +
              " devices " + who_counts(job) +
              " asks for; a smaller train.grain or a larger "
              "train.global_batch would help",
          {}};
}

Result<Plan> assemble(const PlanRequest& request, const Candidates& candidates,
                      const Choice& choice) {
  Plan plan;
  plan.job_key = request.profile.job_key;
  plan.numerics = request.job.train.numerics;
  plan.global_batch = request.job.train.global_batch;
  plan.grain = choice.grain;
  plan.left_out = candidates.left_out;
  for (size_t i = 0; i < candidates.devices.size(); ++i) {
    if (choice.grains[i] == 0) continue;
    const Candidate& candidate = candidates.devices[i];
    const Rank rank(plan.world_size());
    plan.ranks.push_back({candidate.spec->id, candidate.spec->host, candidate.spec->type});
    plan.replicas.push_back(replica_of(request, candidate, rank, choice.grains[i]));
  }
  if (choice.short_device >= 0) {  // the step's last grain is the short one: its device comes last
    const auto used_before =
        std::count_if(choice.grains.begin(), choice.grains.begin() + choice.short_device,
                      [](int grains) { return grains > 0; });
    const auto taker = plan.replicas.begin() + used_before;
    std::rotate(taker, taker + 1, plan.replicas.end());
  }
  choose_micro_batches(request, &plan);
  plan.owners = even_ownership(plan, request.job.model);
  MOTLEY_TRY_VOID(predict(request, &plan));
  return plan;
}

}  // namespace motley
