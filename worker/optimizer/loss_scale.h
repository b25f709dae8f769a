#pragma once
// By what the loss is multiplied so that gradients of activations stay within the range of fp16
// (Micikevicius et al. 2018): fixed, or found while training. Always a power of two, which loses no
// bit. A pure function of the steps so far: the same on all ranks, and part of the checkpoint.

#include "core/manifest.h"
#include "core/spec/job_spec.h"

namespace motley {

class LossScale {
 public:
  /// `used`: someone computes in fp16; else the scale is 1 and stays so.
  LossScale(const TrainSpec& train, bool used);

  /// log2 of the scale of the next step.
  int exponent() const { return state_.exponent; }
  /// After a step in which some rank's gradient was not finite: false when there is no lower scale
  /// to repeat it with.
  bool lower();
  /// After a step that was kept. 2000 of them in a row raise the scale.
  void keep();

  const LossScaleState& state() const { return state_; }
  /// Of a checkpoint. A fixed scale stays what the job says.
  void restore(const LossScaleState& state);

 private:
  LossScaleState state_;
  bool dynamic_;
};

}  // namespace motley
