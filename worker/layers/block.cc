#include "worker/layers/block.h"

#include <string>

namespace motley {

namespace {

/// Where dropout lies in a block.
constexpr int kAfterAttention = 0, kAfterMlp = 1;

std::string name_of(int number, const char* part) {
  return "block." + std::to_string(number) + "." + part;
}

Linear::Shape shape_of(int64_t inputs, int64_t outputs) {
  return {.inputs = inputs, .outputs = outputs, .fp8 = true};
}

/// q, k and v lie side by side and are computed as one.
Linear fused_qkv(const ParameterLayout& layout, int number, Linear::Shape shape) {
  return {shape, layout.range(name_of(number, "attention.q.weight"), 3),
          layout.range(name_of(number, "attention.q.bias"), 3)};
}

}  // namespace

Block::Block(const ModelSpec& model, const MemberShape& shape, const ParameterLayout& layout,
             int number, Recompute recompute)
    : width_(model.width),
      head_dim_(model.head_dim()),
      heads_(shape.heads.count),
      columns_(shape.columns.count),
      recompute_(recompute),
      norm1_(layout, name_of(number, "norm1"), width_),
      norm2_(layout, name_of(number, "norm2"), width_),
      qkv_(fused_qkv(layout, number, shape_of(width_, 3 * heads_ * head_dim_))),
      out_(shape_of(heads_ * head_dim_, width_), layout, name_of(number, "attention.out")),
      up_(shape_of(width_, columns_), layout, name_of(number, "mlp.up")),
      down_(shape_of(columns_, width_), layout, name_of(number, "mlp.down")) {}

ResidualSum Block::forward(LayerEmitter& emitter, const ResidualSum& input) {
  attend(emitter, input);
  widen(emitter, add_attention(emitter));
  return add_branch(emitter, down_.forward(emitter, activated_), middle_, kAfterMlp);
}

Address Block::backward(LayerEmitter& emitter, Address d_output) {
  // d_output is the gradient of each residual sum in turn: a branch adds its part and hands it on.
  if (recompute_ == Recompute::kBlock) {
    attend(emitter, {input_});
    widen(emitter, add_attention(emitter));
  }
  if (recompute_ == Recompute::kMlp) widen(emitter, {middle_});
  mlp_backward(emitter, d_output);
  if (recompute_ == Recompute::kAttention) attend(emitter, {input_});
  attention_backward(emitter, d_output);
  return d_output;
}

// --- forward, in the parts that may be computed again

void Block::attend(LayerEmitter& emitter, const ResidualSum& input) {
  normed1_ = norm1_.forward(emitter, input);
  input_ = norm1_.input();
  qkv_output_ = qkv_.forward(emitter, normed1_);
  AttentionForwardArgs args = attention_shape(emitter);
  args.qkv = qkv_output_;
  args.out = attended_ = emitter.activation(emitter.batch().rows() * heads_ * head_dim_);
  args.lse = log_sum_exp_ = emitter.statistic(emitter.batch().rows() * heads_);
  emitter.emit(args);
}

ResidualSum Block::add_attention(LayerEmitter& emitter) {
  return add_branch(emitter, out_.forward(emitter, attended_), input_, kAfterAttention);
}

void Block::widen(LayerEmitter& emitter, const ResidualSum& middle) {
  normed2_ = norm2_.forward(emitter, middle);
  middle_ = norm2_.input();
  const Linear::Activated widened = up_.forward_gelu(emitter, normed2_);
  up_output_ = widened.pre_activation;
  activated_ = widened.output;
}

/// The sum of both, once the branch is whole.
ResidualSum Block::add_branch(LayerEmitter& emitter, Address branch, Address residual,
                              int place) const {
  emitter.sum_parts(branch, emitter.batch().rows() * width_);
  emitter.drop(branch, width_, place);
  return {.stream = residual, .branch = branch};
}

AttentionForwardArgs Block::attention_shape(LayerEmitter& emitter) const {
  const MicroBatch& batch = emitter.batch();
  AttentionForwardArgs shape{.qkv = {},
                             .out = {},
                             .lse = {},
                             .workspace = {},
                             .samples = batch.samples,
                             .context = batch.context,
                             .heads = heads_,
                             .head_dim = head_dim_};
  shape.workspace = emitter.statistic(
      attention_workspace_elements(shape, emitter.options().kind, emitter.options().threads));
  return shape;
}

// --- backward

void Block::mlp_backward(LayerEmitter& emitter, Address d_output) {
  const MicroBatch& batch = emitter.batch();
  const Address d_down = emitter.drop_gradient(d_output, width_, kAfterMlp);
  const Address d_up_output = down_.backward(emitter, activated_, d_down, up_output_);
  const Address d_normed = up_.backward(emitter, normed2_, d_up_output);
  emitter.sum_parts(d_normed, batch.rows() * width_);
  norm2_.backward_into(emitter, d_normed, d_output);
}

void Block::attention_backward(LayerEmitter& emitter, Address d_output) {
  const MicroBatch& batch = emitter.batch();
  const Address d_attended =
      out_.backward(emitter, attended_, emitter.drop_gradient(d_output, width_, kAfterAttention));
  const Address d_qkv = emitter.activation(batch.rows() * 3 * heads_ * head_dim_);
  const AttentionForwardArgs shape = attention_shape(emitter);
  emitter.emit(AttentionBackwardArgs{.qkv = qkv_output_,
                                     .out = attended_,
                                     .lse = log_sum_exp_,
                                     .d_out = d_attended,
                                     .d_qkv = d_qkv,
                                     .workspace = shape.workspace,
                                     .samples = shape.samples,
                                     .context = shape.context,
                                     .heads = shape.heads,
                                     .head_dim = shape.head_dim});
  const Address d_normed = qkv_.backward(emitter, normed1_, d_qkv);
  emitter.sum_parts(d_normed, batch.rows() * width_);
  norm1_.backward_into(emitter, d_normed, d_output);
}

}  // namespace motley
