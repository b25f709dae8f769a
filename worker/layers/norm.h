#pragma once
#include "worker/layers/layer.h"

namespace motley {

/// LayerNorm over the last dimension, at the mouth of a residual branch. The sum it is applied to
/// is computed on the way.
class Norm {
 public:
  /// Tensors `name`.gain and `name`.bias of [width].
  Norm(const ParameterLayout& layout, const std::string& name, int64_t width);

  Address forward(LayerEmitter& emitter, const ResidualSum& input);
  /// What forward() was applied to: the sum.
  Address input() const { return input_; }

  /// Adds the branch's gradient to `d_input`, which holds that of the other branch.
  void backward_into(LayerEmitter& emitter, Address d_output, Address d_input);
  /// There is no other branch: returns the gradient of the input.
  Address backward(LayerEmitter& emitter, Address d_output);

 private:
  void emit_backward(LayerEmitter& emitter, Address d_output, Address d_input, bool accumulate);

  ParameterRange gain_, bias_;
  int64_t width_;
  Address input_, mean_, rstd_;
};

}  // namespace motley
