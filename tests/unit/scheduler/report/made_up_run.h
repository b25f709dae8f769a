#pragma once
// A small run that never was: a plan of two unlike cards and what came of it.

#include <cmath>

#include "core/plan.h"
#include "scheduler/report/loss_curves.h"
#include "scheduler/report/run_summary.h"

namespace motley::testing {

inline Plan made_up_plan() {
  Plan plan;
  plan.id = "1f2e3d4c5b6a7988";
  plan.global_batch = 64;
  plan.grain = 4;
  plan.ranks = {{"a1/0", "a1", "A100-40GB"}, {"r1/0", "r1", "RTX3090"}};
  for (int rank = 0; rank < 2; ++rank) {
    ReplicaPlan replica;
    replica.stages = {{0, 5, {Rank(rank)}, {1.0}}};
    replica.micro_batch = rank == 0 ? 8 : 4;
    replica.grains = rank == 0 ? 11 : 5;
    plan.replicas.push_back(replica);
  }
  plan.prediction.step_seconds = 0.105;
  plan.prediction.communication_seconds = 0.004;
  plan.prediction.samples_per_second = 64 / 0.105;
  plan.prediction.solo_sum_samples_per_second = 650;
  plan.prediction.integer_bound_efficiency = 0.985;
  plan.prediction.ranks = {
      {Rank(0), 0.1, 0.001, 0, Bytes(int64_t{6} << 30), Bytes(int64_t{36} << 30), Bytes(0), 450},
      {Rank(1), 0.095, 0.001, 0.005, Bytes(int64_t{5} << 30), Bytes(int64_t{22} << 30), Bytes(0),
       200}};
  plan.left_out = {{"r1/1", "too little memory: 3.0 GiB of 4.1 GiB"}};
  return plan;
}

inline RunSummary made_up_summary() {
  RunSummary summary;
  summary.run_dir = "/runs/gpt/1";
  summary.state = "finished";
  summary.steps = 200;
  summary.first_loss = 5.5452;
  summary.final_loss = 1.2345678;
  summary.eval_loss = 1.5;
  summary.actual_step_seconds = 0.11;
  summary.samples_per_second = 64 / 0.11;
  summary.solo_sum_samples_per_second = 650;
  summary.efficiency = 64 / 0.11 / 650;
  summary.integer_bound_efficiency = 0.985;
  summary.equal_split =
      EqualSplit{"plain data parallel, synchronous reduction at the end", 400, ""};
  summary.predicted_step_seconds = 0.105;
  summary.weights_xxh3 = "00112233445566778899aabbccddeeff";
  summary.plan_id = "1f2e3d4c5b6a7988";
  summary.kind = Evidence::kPaced;
  summary.restarts = 0;
  summary.paced = {2000, 3};
  summary.ranks = {{0, "a1/0", 0.101, 0.008, 0.001, 0, 8800, {1000, 0}},
                   {1, "r1/0", 0.097, 0.012, 0.001, 0, 4000, {1000, 3}}};
  return summary;
}

inline SetAside made_up_damage() {
  return {40, ".suspect-step-00000040.e1",
          "s0001.safetensors: block 0 of weight/norm.gain does not match its checksum"};
}

/// `steps` steps of a falling loss, with an evaluation every tenth.
inline LossCurves made_up_losses(int steps) {
  LossCurves curves;
  curves.title = "gpt/1";
  for (int step = 1; step <= steps; ++step) {
    const double loss = 1 + 4 / (1 + 0.1 * step);
    curves.train.push_back({step, loss});
    if (step % 10 == 0) curves.held_out.push_back({step, loss + 0.25});
  }
  return curves;
}

}  // namespace motley::testing
