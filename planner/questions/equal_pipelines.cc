#include "planner/questions/equal_pipelines.h"

#include <algorithm>
#include <utility>

#include "core/spec/precisions.h"
#include "planner/costs/cost_model.h"

namespace motley {
namespace {

std::vector<const DeviceSpec*> admitted_devices(const PlanRequest& request,
                                                const FleetSpec& chosen) {
  std::vector<const DeviceSpec*> devices;
  for (const DeviceSpec& spec : request.fleet.devices)
    if (chosen.find(spec.id) != nullptr) devices.push_back(&spec);
  const auto& limits = request.job.devices.count;
  if (limits && static_cast<int>(devices.size()) > limits->high)
    devices.resize(static_cast<size_t>(limits->high));
  return devices;
}

/// The `part`-th of `parts` nearly equal parts of `whole`; the first ones are larger.
int part_of(int whole, int parts, int part) { return whole / parts + (part < whole % parts); }

/// Blocks in equal parts, the embedding before the first and the head after the last.
std::vector<StagePlan> equal_stages(const ModelSpec& model, int stages, int first_rank) {
  std::vector<StagePlan> cut;
  LayerIndex next = 0;
  for (int i = 0; i < stages; ++i) {
    const int edges = (i == 0) + (i == stages - 1);
    StagePlan stage;
    stage.first_layer = next;
    stage.last_layer = next + part_of(model.layers, stages, i) + edges - 1;
    stage.ranks = {Rank(first_rank + i)};
    stage.shares = {1.0};
    next = stage.last_layer + 1;
    cut.push_back(std::move(stage));
  }
  return cut;
}

class EqualPipelines {
 public:
  EqualPipelines(const PlanRequest& request, std::vector<const DeviceSpec*> devices,
                 const CountMemory& count)
      : request_(request),
        devices_(std::move(devices)),
        count_(count),
        grain_(request.job.train.grain.value_or(1)),
        grains_((request.job.train.global_batch + grain_ - 1) / grain_) {}

  Result<Plan> run() {
    const int most = std::min(static_cast<int>(devices_.size()), request_.job.model.layers);
    for (int stages = 2; stages <= most; ++stages) {
      for (Plan& plan : by_step_time(stages)) {
        MOTLEY_TRY(const bool fits, count_memory(&plan));
        if (fits) return std::move(plan);
      }
    }
    return fail(ErrorCode::kNoPlan, "no pipeline of equal stages over " +
                                        std::to_string(devices_.size()) + " devices can hold it");
  }

 private:
  /// One for each number of grains in a micro-batch, doubling; without those that the profile says
  /// a device cannot hold a layer of. The quickest first.
  std::vector<Plan> by_step_time(int stages) const {
    const int pipelines = std::min(static_cast<int>(devices_.size()) / stages, grains_);
    const bool exact = request_.job.train.numerics == Numerics::kExact;
    const int most_grains = exact ? 1 : grains_ / pipelines;
    std::vector<Plan> plans;
    for (int grains = 1; grains <= most_grains; grains *= 2) {
      Plan plan = cut(stages, pipelines, grains * grain_);
      if (predict(request_, &plan)) plans.push_back(std::move(plan));
    }
    std::stable_sort(plans.begin(), plans.end(), [](const Plan& a, const Plan& b) {
      return a.prediction.step_seconds < b.prediction.step_seconds;
    });
    return plans;
  }

  Plan cut(int stages, int pipelines, int micro_batch) const {
    Plan plan;
    plan.job_key = request_.profile.job_key;
    plan.numerics = request_.job.train.numerics;
    plan.global_batch = request_.job.train.global_batch;
    plan.grain = grain_;
    for (int i = 0; i < pipelines * stages; ++i) {
      const DeviceSpec& device = *devices_[static_cast<size_t>(i)];
      plan.ranks.push_back({device.id, device.host, device.type});
    }
    plan.left_out = left_out(plan.ranks.size(), stages);
    for (int i = 0; i < pipelines; ++i) {
      ReplicaPlan replica;
      replica.stages = equal_stages(request_.job.model, stages, i * stages);
      replica.micro_batch = micro_batch;
      replica.grains = part_of(grains_, pipelines, i);
      for (size_t stage = 0; stage < replica.stages.size(); ++stage) {
        const DeviceSpec& device = *devices_[static_cast<size_t>(i * stages) + stage];
        replica.stages[stage].precision =
            precision_allowed(request_.job, device, request_.profile.find(device.id)->precision);
      }
      plan.replicas.push_back(std::move(replica));
    }
    plan.owners = even_ownership(plan, request_.job.model);
    return plan;
  }

  std::vector<LeftOut> left_out(size_t used, int stages) const {
    std::vector<LeftOut> devices;
    for (const DeviceSpec& device : request_.fleet.devices) {
      const auto place = std::find(devices_.begin(), devices_.end(), &device) - devices_.begin();
      if (place == static_cast<std::ptrdiff_t>(devices_.size()))
        devices.push_back({device.id, why_not_admitted(device, request_.job)});
      else if (static_cast<size_t>(place) >= used)
        devices.push_back({device.id, "the others make whole pipelines of " +
                                          std::to_string(stages) + " equal stages"});
    }
    return devices;
  }

  /// Whether every rank's bytes fit its device; they go into the prediction.
  Result<bool> count_memory(Plan* plan) const {
    MOTLEY_TRY(const std::vector<RankMemory> counted, count_(*plan));
    MOTLEY_TRY_VOID(predict(request_, plan, counted));
    return have_room(request_, *plan, counted);
  }

  const PlanRequest& request_;
  std::vector<const DeviceSpec*> devices_;
  const CountMemory& count_;
  int grain_;
  int grains_;
};

}  // namespace

Result<Plan> plan_equal_pipelines(const PlanRequest& request, const CountMemory& count) {
  MOTLEY_TRY(const FleetSpec chosen, admitted(request.fleet, request.job));
  return EqualPipelines(request, admitted_devices(request, chosen), count).run();
}

}  // namespace motley
