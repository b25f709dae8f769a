#include "planner/pinned/pinned_replica.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/spec/names.h"
#include "core/spec/pin_fault.h"
#include "core/spec/precisions.h"
#include "planner/costs/cost_model.h"
#include "planner/costs/replica_times.h"
#include "planner/costs/slice_traffic.h"
#include "planner/pipelines/pipeline_space.h"
#include "planner/plain/candidates.h"

namespace motley {

int grain_with_pins(const JobSpec& job) {
  int grain = grain_of(job, 1);
  if (job.train.grain) return grain;
  for (const PinnedReplica& pin : job.pin.replicas)
    if (pin.micro_batch) grain = std::gcd(grain, *pin.micro_batch);
  return grain;
}

PricedPin::PricedPin(const PlanRequest& request, size_t number, int grain)
    : known_ranks_(request.profile.links),
      request_(&request),
      pin_(&request.job.pin.replicas[number]),
      key_("pin.replicas." + std::to_string(number)) {
  alone_.numerics = request.job.train.numerics;
  alone_.grain = grain;
  alone_.replicas.emplace_back();
}

Result<PricedPin> PricedPin::make(const PlanRequest& request, size_t number, int grain) {
  PricedPin priced(request, number, grain);
  MOTLEY_TRY_VOID(priced.place_stages());
  MOTLEY_TRY_VOID(priced.find_sizes());
  MOTLEY_TRY_VOID(priced.find_ready());
  return priced;
}

const DeviceProfile& PricedPin::profile_of(size_t rank) const {
  return *request_->profile.find(alone_.ranks[rank].device);
}

Result<Unit> PricedPin::place_stages() {
  for (size_t s = 0; s < pin_->stages.size(); ++s) {
    const PinnedStage& pinned = pin_->stages[s];
    const std::string key = key_ + ".stages." + std::to_string(s);
    StagePlan stage = pinned_stage_plan(pinned, request_->job.model, alone_.world_size());
    for (const std::string& id : pinned.devices) {
      const DeviceSpec* device = request_->fleet.find(id);
      if (device == nullptr || !unmet_demand(*device, request_->job).empty())
        return fail(ErrorCode::kNoPlan,
                    "the job pins " + id + ", which is not among the devices there are",
                    place_of(request_->job, key + ".devices"));
      if (request_->profile.find(id) == nullptr)
        return fail(ErrorCode::kInvalidSpec, "the profile lacks " + id + " (" + device->type +
                                                 "); measure it with `motley profile`");
      MOTLEY_TRY(const Precision precision, precision_of(pinned, key, id));
      if (id != pinned.devices.front() && precision != stage.precision)
        return fail(ErrorCode::kInvalidSpec,
                    "the devices of a stage compute this job in " + spec_name(stage.precision) +
                        " and " + spec_name(precision) + " (give it a precision they share)",
                    place_of(request_->job, key + ".devices"));
      stage.precision = precision;
      alone_.ranks.push_back({device->id, device->host, device->type});
    }
    alone_.replicas.front().stages.push_back(std::move(stage));
  }
  return Unit{};
}

/// A profile tells nothing of a device in another precision than it was measured in.
Result<Precision> PricedPin::precision_of(const PinnedStage& stage, const std::string& key,
                                          const std::string& device) const {
  const DeviceSpec& spec = *request_->fleet.find(device);
  const Precision measured = request_->profile.find(device)->precision;
  const Precision computed = precision_allowed(request_->job, spec, measured);
  if (stage.precision == Precision::kAuto || stage.precision == computed) return computed;
  return fail(ErrorCode::kInvalidSpec,
              "the stage is pinned to " + spec_name(stage.precision) + "; " + device +
                  " computes this job in " + spec_name(computed) + " (see train.precision)",
              place_of(request_->job, key + ".precision"));
}

bool PricedPin::is_whole() const {
  return is_plain(alone_.replicas.front()) && profile_of(0).curve("model") != nullptr;
}

Result<Unit> PricedPin::find_sizes() {
  if (pin_->micro_batch) {
    sizes_ = {*pin_->micro_batch};
    return Unit{};
  }
  const MicroBatchRule rule = micro_batch_rule(*request_, alone_.grain);
  if (is_whole()) {
    sizes_ = micro_batch_sizes(profile_of(0), rule);
    if (!sizes_.empty()) return Unit{};
    const RankPlacement& rank = alone_.ranks.front();
    return fail(ErrorCode::kNoPlan,
                "the job pins the whole model to " + rank.device + " (" + rank.type + "), which " +
                    memory_lack(profile_of(0), rule),
                place_of(request_->job, key_ + ".stages"));
  }
  std::vector<DeviceGroup> groups;
  for (size_t rank = 0; rank < alone_.ranks.size(); ++rank)
    groups.push_back({.devices = {}, .profile = &profile_of(rank), .precision = Precision::kFp32});
  sizes_ = micro_batches_of(*request_, groups, alone_.grain);
  return Unit{};
}

/// Each rank updates what it holds before the step.
Result<Unit> PricedPin::find_ready() {
  const auto all = static_cast<double>(parameter_count(request_->job.model));
  const std::vector<SliceTraffic> traffic = slice_traffic(alone_, request_->job.model).ranks;
  for (size_t rank = 0; rank < alone_.ranks.size(); ++rank)
    known_ranks_.add(
        alone_.ranks[rank], profile_of(rank),
        profile_of(rank).update_seconds * (static_cast<double>(traffic[rank].held) / all));
  alone_.global_batch = alone_.grain;
  alone_.replicas.front().grains = 1;
  alone_.replicas.front().micro_batch = alone_.grain;
  if (is_whole()) return Unit{};
  // Whether all of its layers were measured shows at the first price.
  MOTLEY_TRY_VOID(replica_times(*request_, alone_, 0, known_ranks_));
  return Unit{};
}

bool PricedPin::use_less_than(int micro_batch) {
  std::erase_if(sizes_, [&](int size) { return size >= micro_batch; });
  known_.clear();
  return !sizes_.empty();
}

double PricedPin::seconds_with(int micro_batch, int samples) {
  ReplicaPlan& replica = alone_.replicas.front();
  alone_.global_batch = samples;
  replica.grains = alone_.grain_count();
  replica.micro_batch = micro_batch;
  return replica_seconds(*request_, alone_, known_ranks_);
}

/// The smallest micro-batch among equals.
const PricedPin::Quickest& PricedPin::quickest(int samples) {
  const auto [found, is_new] = known_.try_emplace(samples);
  if (!is_new) return found->second;
  for (const int size : sizes_) {
    const double seconds = seconds_with(size, samples);
    if (seconds < found->second.seconds) found->second = {seconds, size};
    if (size >= samples) break;  // larger ones compute the same single micro-batch
  }
  return found->second;
}

}  // namespace motley
