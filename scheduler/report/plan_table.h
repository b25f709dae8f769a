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
  bool layers_only = false;  ///< summed from its layers: it cannot hold the model alone
  bool used = true;          ///< by the plan: the sum is of these
};

/// Of every device in the profile, by the rules of the plan's numerics. One that cannot hold the
/// model counts layer by layer if the plan uses it.
std::vector<SoloSpeed> solo_speeds(const Profile& profile, const Plan& plan,
                                   const ModelSpec& model);

/// The weakest kind among a plan's devices: a table is called measured only if all of it was.
Evidence weakest_evidence(const Profile& profile, const Plan& plan);

/// One a line, then the sum of those the plan uses, to which its efficiency refers.
std::string solo_table(const std::vector<SoloSpeed>& speeds, Evidence evidence);

/// For each rank device, type, micro-batch, grains, share of the batch, memory used / limit; of a
/// plan that is cut also where it stands: replica.stage, layers, part of them. Then the prediction
/// in one line and the devices left out, one a line.
std::string plan_table(const Plan& plan, Evidence evidence);

/// What "wait" means in every table, predicted or actual: seconds a step that the rank does not
/// compute, because others are not there yet or gradients travel.
double waiting_seconds(const Prediction& prediction, const RankPrediction& rank);

}  // namespace motley
