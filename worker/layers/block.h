#pragma once
#include "worker/layers/linear.h"
#include "worker/layers/norm.h"

namespace motley {

/// A pre-LayerNorm transformer block:
///   y = x + out(attention(qkv(norm1(x))));   output = y + down(gelu(up(norm2(y))))
class Block final : public Layer {
 public:
  Block(const ModelSpec& model, const ParameterLayout& layout, int number);

  Address forward(LayerEmitter& emitter, Address input) override;
  Address backward(LayerEmitter& emitter, Address d_output) override;

 private:
  Address attend(LayerEmitter& emitter, Address qkv);
  Address attend_backward(LayerEmitter& emitter, Address d_attended);

  ModelSpec model_;
  Norm norm1_, norm2_;
  Linear qkv_, out_, up_, down_;
  Address qkv_output_, attended_, log_sum_exp_, up_output_;
};

}  // namespace motley
