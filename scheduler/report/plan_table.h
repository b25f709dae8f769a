#pragma once
// What `motley run` and `motley plan` print before training: solo speeds, then the plan.

#include <string>
#include <vector>

#include "core/plan.h"
#include "core/profile.h"

namespace motley {

/// One device alone on the whole global batch.
struct SoloSpeed {
  std::string device, type;
  int micro_batch = 0;  ///< its best; 0: it cannot hold the model
  double samples_per_second = 0;
};

/// Of every device in the profile, by the rules of the plan's numerics.
std::vector<SoloSpeed> solo_speeds(const Profile& profile, const Plan& plan);

/// The weakest kind among a plan's devices: a table is called measured only if all of it was.
Evidence weakest_evidence(const Profile& profile, const Plan& plan);

std::string solo_table(const std::vector<SoloSpeed>& speeds, Evidence evidence);

/// Device, type, micro-batch, grains, share of the batch, memory used / limit; then the prediction
/// in one line and the devices left out, one a line.
std::string plan_table(const Plan& plan, Evidence evidence);

/// What "wait" means in every table, predicted or actual: seconds a step that the rank does not
/// compute, because others are not there yet or gradients travel.
double waiting_seconds(const Prediction& prediction, const RankPrediction& rank);

}  // namespace motley
