#include "worker/layers/block.h"

namespace motley {

namespace {

std::string name_of(int number, const char* part) {
  return "block." + std::to_string(number) + "." + part;
}

Linear linear(const ParameterLayout& layout, const std::string& name, int64_t inputs,
              int64_t outputs) {
  return {{inputs, outputs}, layout.range(name + ".weight"), layout.range(name + ".bias")};
}

/// q, k and v lie side by side and are computed as one.
Linear fused_qkv(const ParameterLayout& layout, int number, int64_t width) {
  return {{width, 3 * width},
          layout.range(name_of(number, "attention.q.weight"), 3),
          layout.range(name_of(number, "attention.q.bias"), 3)};
}

/// branch += residual; the sum takes the branch's place.
Address add_residual(LayerEmitter& emitter, Address branch, Address residual, int64_t count) {
  emitter.emit(AddArgs{.a = branch, .b = residual, .out = branch, .count = count});
  return branch;
}

}  // namespace

Block::Block(const ModelSpec& model, const ParameterLayout& layout, int number)
    : model_(model),
      norm1_(layout, name_of(number, "norm1"), model.width),
      norm2_(layout, name_of(number, "norm2"), model.width),
      qkv_(fused_qkv(layout, number, model.width)),
      out_(linear(layout, name_of(number, "attention.out"), model.width, model.width)),
      up_(linear(layout, name_of(number, "mlp.up"), model.width, 4 * model.width)),
      down_(linear(layout, name_of(number, "mlp.down"), 4 * model.width, model.width)) {}

Address Block::forward(LayerEmitter& emitter, Address input) {
  const int64_t count = emitter.batch().rows() * model_.width;
  qkv_output_ = qkv_.forward(emitter, norm1_.forward(emitter, input));
  attended_ = attend(emitter, qkv_output_);
  const Address middle = add_residual(emitter, out_.forward(emitter, attended_), input, count);

  up_output_ = up_.forward(emitter, norm2_.forward(emitter, middle));
  const Address activated = emitter.activation(4 * count);
  emitter.emit(GeluForwardArgs{.x = up_output_, .out = activated, .count = 4 * count});
  return add_residual(emitter, down_.forward(emitter, activated), middle, count);
}

Address Block::backward(LayerEmitter& emitter, Address d_output) {
  // d_output is the gradient of each residual sum in turn: a branch adds its part and hands it on.
  const int64_t count = emitter.batch().rows() * model_.width;
  const Address d_activated = down_.backward(emitter, d_output);
  emitter.emit(GeluBackwardArgs{
      .x = up_output_, .d_out = d_activated, .d_x = d_activated, .count = 4 * count});
  norm2_.backward_into(emitter, up_.backward(emitter, d_activated), d_output);

  const Address d_qkv = attend_backward(emitter, out_.backward(emitter, d_output));
  norm1_.backward_into(emitter, qkv_.backward(emitter, d_qkv), d_output);
  return d_output;
}

Address Block::attend(LayerEmitter& emitter, Address qkv) {
  const MicroBatch& batch = emitter.batch();
  const Address output = emitter.activation(batch.rows() * model_.width);
  log_sum_exp_ = emitter.activation(batch.rows() * model_.heads);
  const int64_t workspace =
      attention_workspace_elements(batch.context, model_.head_dim(), emitter.options().threads);
  emitter.emit(AttentionForwardArgs{.qkv = qkv,
                                    .out = output,
                                    .lse = log_sum_exp_,
                                    .workspace = emitter.activation(workspace),
                                    .samples = batch.samples,
                                    .context = batch.context,
                                    .heads = model_.heads,
                                    .head_dim = model_.head_dim()});
  return output;
}

Address Block::attend_backward(LayerEmitter& emitter, Address d_attended) {
  const MicroBatch& batch = emitter.batch();
  const Address d_qkv = emitter.activation(batch.rows() * 3 * model_.width);
  const int64_t workspace =
      attention_workspace_elements(batch.context, model_.head_dim(), emitter.options().threads);
  emitter.emit(AttentionBackwardArgs{.qkv = qkv_output_,
                                     .out = attended_,
                                     .lse = log_sum_exp_,
                                     .d_out = d_attended,
                                     .d_qkv = d_qkv,
                                     .workspace = emitter.activation(workspace),
                                     .samples = batch.samples,
                                     .context = batch.context,
                                     .heads = model_.heads,
                                     .head_dim = model_.head_dim()});
  return d_qkv;
}

}  // namespace motley
