#pragma once
#include <optional>

#include "worker/layers/layer.h"

namespace motley {

/// output = input·weightᵀ + bias, weight [outputs, inputs].
class Linear final : public Layer {
 public:
  struct Shape {
    int64_t inputs = 0;
    int64_t outputs = 0;
  };
  Linear(Shape shape, ParameterRange weight, std::optional<ParameterRange> bias)
      : shape_(shape), weight_(weight), bias_(bias) {}

  Address forward(LayerEmitter& emitter, Address input) override;
  Address backward(LayerEmitter& emitter, Address d_output) override;

 private:
  Shape shape_;
  ParameterRange weight_;
  std::optional<ParameterRange> bias_;
  Address input_;
};

}  // namespace motley
