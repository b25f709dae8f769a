#pragma once
#include "worker/layers/layer.h"
#include "worker/layers/linear.h"
#include "worker/layers/norm.h"

namespace motley {

/// Elements from one row of a holder's logits of `vocabulary` tokens to the next: rows begin at
/// multiples of 128 bytes, for products on a GPU want them aligned whatever the vocabulary.
constexpr int64_t logits_stride(int64_t vocabulary) { return (vocabulary + 63) / 64 * 64; }

/// Rows behind the table that products with it take for more of a holder's `vocabulary`, so that
/// extents are multiples of what tensor cores want: on GPUs in reduced precision, where the table
/// is part of a copy. What is there does not matter as long as it is finite: nobody reads its
/// logits, and the gradients that it meets are 0.
constexpr int64_t vocabulary_padding(int64_t vocabulary, DeviceKind kind, Precision precision) {
  const bool pads = kind == DeviceKind::kCuda && is_reduced(precision);
  return pads ? logits_stride(vocabulary) - vocabulary : 0;
}

/// Final norm, the head tied to the token embedding, and the loss of each row. Its output are the
/// logits, logits_stride() apart; when training they become the gradient of the summed loss in
/// place. Ranks that share it each have the logits of their part of the vocabulary, and all have
/// the losses.
class Head final : public Layer {
 public:
  /// `padding`: vocabulary_padding().
  Head(const ModelSpec& model, const MemberShape& shape, const ParameterLayout& layout,
       int64_t padding);

  ResidualSum forward(LayerEmitter& emitter, const ResidualSum& input) override;
  /// The loss is the last of the program: d_output is what forward() returned.
  Address backward(LayerEmitter& emitter, Address d_output) override;

 private:
  void emit_losses(LayerEmitter& emitter, Address logits) const;
  void emit_shared_losses(LayerEmitter& emitter, Address logits) const;

  int64_t width_;
  UnitRange vocabulary_;  // of this rank
  Norm norm_;
  Linear tied_;
  Address normed_;
};

}  // namespace motley
