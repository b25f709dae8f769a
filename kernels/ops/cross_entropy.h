#pragma once
#include "kernels/address.h"

namespace motley {

/// Softmax cross-entropy over rows of logits [rows, vocab] against int32 targets[rows]:
/// losses[r] = log Σ exp(logits[r,:]) - logits[r, targets[r]]; when d_logits is not null it becomes
/// softmax(logits[r,:]) - onehot(targets[r]), the gradient of the *sum* of losses (d_logits may be
/// logits).
struct CrossEntropyArgs {
  Address logits, targets, losses;
  Address d_logits = {};  ///< may be null
  int64_t rows = 0, vocab = 0;

  double flops() const { return 6.0 * static_cast<double>(rows) * static_cast<double>(vocab); }
  template <class V>
  void operands(V&& v) {
    v.read(logits);
    v.read(targets);
    v.write(losses);
    v.write(d_logits);
  }
};

}  // namespace motley
