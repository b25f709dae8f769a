#pragma once
#include "kernels/operand.h"

namespace motley {

/// Softmax cross-entropy over rows of logits [rows, vocab] against int32 targets[rows]:
/// losses[r] = log Σ exp(logits[r,:]) - logits[r, targets[r]]; when d_logits is not null it becomes
/// (softmax(logits[r,:]) - onehot(targets[r]))·scale, the gradient of scale times the *sum* of
/// losses (d_logits may be logits). From one row of logits, and of d_logits, to the next it is
/// `stride` elements; what lies between rows of logits is nobody's, between those of d_logits it
/// becomes 0, so that products may take it for columns.
struct CrossEntropyArgs {
  Address logits, targets, losses;
  Address d_logits = {};  ///< may be null
  int64_t rows = 0, vocab = 0;
  Address scale = {};  ///< double, whatever the device computes in; null: 1
  int64_t stride = 0;  ///< 0: vocab

  int64_t row_stride() const { return stride == 0 ? vocab : stride; }
  double flops() const { return 6.0 * static_cast<double>(rows) * static_cast<double>(vocab); }
  template <class V>
  void operands(V&& v) {
    v.read(reduced(logits, rows * row_stride()));
    v.read(raw(targets, rows * 4));
    v.read(raw(scale, sizeof(double)));
    v.write(full(losses, rows));
    v.write(reduced(d_logits, rows * row_stride()));
  }
};

/// What one holder of vocabulary columns [first_token, first_token + vocab) knows of a row:
/// stats[r,:] = (max logits[r,:], Σ exp(logits[r,:] - max), the target's logit or 0 where the
/// target is not held). Without columns (-inf, 0, 0). The parts of a row are joined by
/// CrossEntropyCombineArgs: a vocabulary-parallel cross-entropy that exchanges three numbers a row
/// (the idea of Shoeybi et al. 2019; three numbers at once as in Milakov & Gimelshein 2018).
struct CrossEntropyPartArgs {
  Address logits, targets, stats;  ///< [rows, vocab], int32 [rows], [rows, 3]
  int64_t rows = 0, vocab = 0, first_token = 0;
  int64_t stride = 0;  ///< of logits, as in CrossEntropyArgs

  int64_t row_stride() const { return stride == 0 ? vocab : stride; }
  double flops() const { return 3.0 * static_cast<double>(rows) * static_cast<double>(vocab); }
  template <class V>
  void operands(V&& v) {
    v.read(reduced(logits, rows * row_stride()));
    v.read(raw(targets, rows * 4));
    v.write(full(stats, rows * 3));
  }
};

/// With M = max over parts of their maximum, S = Σ over parts of sum·exp(maximum - M), parts in
/// rising order: losses[r] = M + log S - Σ target logits; when d_logits is not null it becomes
/// (exp(logits[r,:] - M)/S - onehot(targets[r]))·scale for the held columns [first_token,
/// first_token + vocab), and between rows 0: the gradient of scale times the *sum* of losses
/// (d_logits may be logits). The same stats give the same losses bit by bit wherever they are
/// combined.
struct CrossEntropyCombineArgs {
  Address stats;  ///< [parts, rows, 3] of CrossEntropyPartArgs; the parts tile the vocabulary
  Address logits, targets, losses;
  Address d_logits = {};  ///< may be null
  int64_t parts = 0, rows = 0, vocab = 0, first_token = 0;
  Address scale = {};  ///< double, whatever the device computes in; null: 1
  int64_t stride = 0;  ///< 0: vocab

  int64_t row_stride() const { return stride == 0 ? vocab : stride; }
  double flops() const { return 4.0 * static_cast<double>(rows) * static_cast<double>(vocab); }
  template <class V>
  void operands(V&& v) {
    v.read(full(stats, parts * rows * 3));
    v.read(reduced(logits, rows * row_stride()));
    v.read(raw(targets, rows * 4));
    v.read(raw(scale, sizeof(double)));
    v.write(full(losses, rows));
    v.write(reduced(d_logits, rows * row_stride()));
  }
};

}  // namespace motley
