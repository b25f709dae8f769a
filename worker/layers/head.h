#pragma once
#include "worker/layers/linear.h"
#include "worker/layers/norm.h"

namespace motley {

/// Final norm, the head tied to the token embedding, and the loss of each row. Its output are the
/// logits; when training they become the gradient of the summed loss in place.
class Head final : public Layer {
 public:
  Head(const ModelSpec& model, const ParameterLayout& layout);

  Address forward(LayerEmitter& emitter, Address input) override;
  /// The loss is the last of the program: d_output is what forward() returned.
  Address backward(LayerEmitter& emitter, Address d_output) override;

 private:
  ModelSpec model_;
  Norm norm_;
  Linear tied_;
};

}  // namespace motley
