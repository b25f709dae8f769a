#pragma once
#include <optional>
#include <string>

#include "worker/layers/layer.h"

namespace motley {

/// output = input·weightᵀ + bias, weight [outputs, inputs]. Ranks that share it hold rows of it
/// (each then has some of the outputs) or columns (each has a part of all outputs, to be summed).
class Linear {
 public:
  struct Shape {
    int64_t inputs = 0;
    int64_t outputs = 0;
  };
  Linear(Shape shape, ParameterRange weight, std::optional<ParameterRange> bias)
      : shape_(shape), weight_(weight), bias_(bias) {}
  /// Tensors `name`.weight and, where it is held, `name`.bias.
  Linear(Shape shape, const ParameterLayout& layout, const std::string& name)
      : Linear(shape, layout.range(name + ".weight"), layout.range_if_held(name + ".bias")) {}

  Address forward(LayerEmitter& emitter, Address input) const;
  /// `input` of the forward pass, or the same computed again. Returns its gradient.
  Address backward(LayerEmitter& emitter, Address input, Address d_output) const;

 private:
  Shape shape_;
  ParameterRange weight_;
  std::optional<ParameterRange> bias_;
};

}  // namespace motley
