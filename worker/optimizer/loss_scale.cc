#include "worker/optimizer/loss_scale.h"

#include <algorithm>
#include <bit>

namespace motley {
namespace {

/// Our gradients are of sums over tokens, not of means: without any scale they are as large as with
/// one of the number of tokens elsewhere.
constexpr int kFirst = 10;
constexpr int kLeast = -10;
constexpr int kMost = 15;  // 2^16 is beyond fp16
constexpr int kStepsToRaise = 2000;

int log2_of(int64_t power_of_two) { return std::countr_zero(static_cast<uint64_t>(power_of_two)); }

}  // namespace

LossScale::LossScale(const TrainSpec& train, bool used)
    : dynamic_(used && !train.loss_scale.has_value()) {
  if (used) state_.exponent = train.loss_scale ? log2_of(*train.loss_scale) : kFirst;
}

bool LossScale::lower() {
  state_.kept_steps = 0;
  if (!dynamic_ || state_.exponent == kLeast) return false;
  --state_.exponent;
  return true;
}

void LossScale::keep() {
  if (!dynamic_ || ++state_.kept_steps < kStepsToRaise) return;
  state_.kept_steps = 0;
  state_.exponent = std::min(state_.exponent + 1, kMost);
}

void LossScale::restore(const LossScaleState& state) {
  if (dynamic_) state_ = {std::clamp(state.exponent, kLeast, kMost), state.kept_steps};
}

}  // namespace motley
