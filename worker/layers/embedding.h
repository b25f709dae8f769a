#pragma once
#include "worker/layers/layer.h"

namespace motley {

/// Token plus position embedding. Its input are the batch's tokens; it hands no gradient on.
class Embedding final : public Layer {
 public:
  Embedding(const ModelSpec& model, const ParameterLayout& layout);

  Address forward(LayerEmitter& emitter, Address input) override;
  Address backward(LayerEmitter& emitter, Address d_output) override;

 private:
  ModelSpec model_;
  ParameterRange token_, position_;
};

}  // namespace motley
