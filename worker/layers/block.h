#pragma once
#include "core/plan.h"
#include "worker/layers/layer.h"
#include "worker/layers/linear.h"
#include "worker/layers/norm.h"

namespace motley {

/// A pre-LayerNorm transformer block:
///   y = x + out(attention(qkv(norm1(x))));   output = y + down(gelu(up(norm2(y))))
/// Ranks that share it compute heads and MLP columns of their own; out and down give parts of a
/// sum (Shoeybi et al. 2019).
class Block final : public Layer {
 public:
  Block(const ModelSpec& model, const MemberShape& shape, const ParameterLayout& layout, int number,
        Recompute recompute);

  ResidualSum forward(LayerEmitter& emitter, const ResidualSum& input) override;
  Address backward(LayerEmitter& emitter, Address d_output) override;

 private:
  void attend(LayerEmitter& emitter, const ResidualSum& input);
  ResidualSum add_attention(LayerEmitter& emitter);
  void widen(LayerEmitter& emitter, const ResidualSum& middle);
  void mlp_backward(LayerEmitter& emitter, Address d_output);
  void attention_backward(LayerEmitter& emitter, Address d_output);
  ResidualSum add_branch(LayerEmitter& emitter, Address branch, Address residual, int place) const;
  AttentionForwardArgs attention_shape(LayerEmitter& emitter) const;

  int64_t width_, head_dim_, heads_, columns_;  // heads and columns: of this rank
  Recompute recompute_;
  Norm norm1_, norm2_;
  Linear qkv_, out_, up_, down_;
  // Saved or computed again: normed1_ to attended_ by attend(), normed2_ to activated_ by widen().
  Address input_, normed1_, qkv_output_, attended_, log_sum_exp_;
  Address middle_, normed2_, up_output_, activated_;
};

}  // namespace motley
