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
    int64_t output_stride = 0;  ///< elements from a row of outputs to the next; 0: no gaps
    bool fp8 = false;           ///< the factors of its products may be rounded to 8 bits
    /// Outputs that products with the weight take besides, of what follows it in the rounded copy;
    /// their gradients must be 0.
    int64_t padding = 0;

    int64_t computed() const { return outputs + padding; }
  };
  Linear(Shape shape, ParameterRange weight, std::optional<ParameterRange> bias)
      : shape_(shape), weight_(weight), bias_(bias) {}
  /// Tensors `name`.weight and, where it is held, `name`.bias.
  Linear(Shape shape, const ParameterLayout& layout, const std::string& name)
      : Linear(shape, layout.range(name + ".weight"), layout.range_if_held(name + ".bias")) {}

  Address forward(LayerEmitter& emitter, Address input) const;

  struct Activated {
    Address pre_activation, output;
  };
  /// gelu of what forward() gives, and that.
  Activated forward_gelu(LayerEmitter& emitter, Address input) const;

  /// `input` of the forward pass, or the same computed again. Returns its gradient; where the input
  /// is the gelu of a `pre_activation`, the gradient of that.
  Address backward(LayerEmitter& emitter, Address input, Address d_output,
                   Address pre_activation = {}) const;

 private:
  int64_t output_stride() const {
    return shape_.output_stride != 0 ? shape_.output_stride : shape_.outputs;
  }
  ParameterRange padded_weight() const {
    return {weight_.offset, weight_.count + shape_.padding * shape_.inputs};
  }
  MatmulArgs product(LayerEmitter& emitter, Address input) const;
  void emit_product(LayerEmitter& emitter, MatmulArgs args) const;
  void emit_parameter_gradients(LayerEmitter& emitter, Address input, Address d_output) const;

  Shape shape_;
  ParameterRange weight_;
  std::optional<ParameterRange> bias_;
};

}  // namespace motley
