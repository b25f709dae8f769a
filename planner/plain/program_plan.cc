#include "planner/plain/program_plan.h"

#include "planner/costs/cost_model.h"

namespace motley {
namespace {

RankPrediction predict_rank(Rank rank, const RankShare& share, const DeviceProfile& device,
                            int global_batch) {
  RankPrediction predicted{.rank = rank};
  predicted.compute_seconds = device_seconds(device, share.samples, share.micro_batch);
  predicted.update_seconds = device.update_seconds;
  const double alone =
      best_micro_batch(device, global_batch, program_sizes(device, global_batch)).seconds;
  predicted.solo_samples_per_second = global_batch / section_seconds(alone, device.update_seconds);
  return predicted;
}

Prediction predict(const JobSpec& job, const std::vector<RankShare>& shares,
                   const std::vector<DeviceProfile>& profiles) {
  Prediction prediction;
  for (size_t i = 0; i < profiles.size(); ++i) {
    prediction.ranks.push_back(
        predict_rank(Rank(static_cast<int>(i)), shares[i], profiles[i], job.train.global_batch));
    prediction.solo_sum_samples_per_second += prediction.ranks.back().solo_samples_per_second;
  }
  const RankPrediction* slowest = prediction.slowest();
  if (slowest == nullptr) return prediction;
  prediction.compute_seconds = slowest->compute_seconds;
  prediction.update_seconds = slowest->update_seconds;
  prediction.step_seconds = slowest->section_seconds();
  prediction.samples_per_second = job.train.global_batch / prediction.step_seconds;
  for (RankPrediction& rank : prediction.ranks)
    rank.wait_seconds = prediction.step_seconds - rank.section_seconds();
  return prediction;
}

}  // namespace

Plan program_plan(const JobSpec& job, const FleetSpec& fleet, const std::vector<RankShare>& shares,
                  const std::vector<DeviceProfile>& profiles) {
  Plan plan;
  plan.global_batch = job.train.global_batch;
  plan.grain = job.train.grain.value_or(1);
  for (const DeviceSpec& device : fleet.devices)
    plan.ranks.push_back({device.id, device.host, device.type});
  for (size_t i = 0; i < shares.size(); ++i) {
    if (shares[i].samples == 0) continue;
    plan.replicas.push_back({.stages = {{.ranks = {Rank(static_cast<int>(i))}, .shares = {1.0}}},
                             .micro_batch = shares[i].micro_batch,
                             .grains = (shares[i].samples + plan.grain - 1) / plan.grain});
  }
  plan.owners.push_back({"model", whole({1}), Rank(0)});  // rank 0 alone makes checkpoints
  plan.prediction = predict(job, shares, profiles);
  plan.search.space = "samples of a step for each rank of a program";
  plan.search.step_seconds = plan.prediction.step_seconds;
  plan.id = plan_id(plan);
  return plan;
}

}  // namespace motley
