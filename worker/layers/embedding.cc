#include "worker/layers/embedding.h"

namespace motley {

Embedding::Embedding(const ModelSpec& model, const MemberShape& shape,
                     const ParameterLayout& layout)
    : context_(model.context),
      width_(model.width),
      vocabulary_(shape.vocabulary),
      token_(layout.range("embed.token.weight")),
      position_(layout.range_if_held("embed.position.weight")) {}

ResidualSum Embedding::forward(LayerEmitter& emitter, const ResidualSum& input) {
  const int64_t rows = emitter.batch().rows();
  const Address output = emitter.activation(rows * width_);
  emitter.emit(EmbeddingForwardArgs{
      .tokens = input.stream,
      .token_table = emitter.rounded_parameter(token_),
      .position_table = position_ ? emitter.rounded_parameter(*position_) : Address(),
      .out = output,
      .rows = rows,
      .context = context_,
      .width = width_,
      .vocab = vocabulary_.count,
      .first_token = vocabulary_.first});
  emitter.sum_parts(output, rows * width_);
  emitter.drop(output, width_, 0);
  return {output};
}

Address Embedding::backward(LayerEmitter& emitter, Address d_output) {
  const GradientTarget token = emitter.begin_gradient(token_);
  GradientTarget position;
  if (position_) position = emitter.begin_gradient(*position_);
  const int64_t rows = emitter.batch().rows();
  const int64_t workspace =
      embedding_workspace_elements(emitter.options().kind, rows, width_, vocabulary_.count);
  emitter.emit(
      EmbeddingBackwardArgs{.tokens = emitter.batch().tokens,
                            .d_out = emitter.drop_gradient(d_output, width_, 0),
                            .token_gradient = token.address,
                            .position_gradient = position.address,
                            .rows = rows,
                            .context = context_,
                            .width = width_,
                            .vocab = vocabulary_.count,
                            .accumulate = token.accumulate,
                            .first_token = vocabulary_.first,
                            .workspace = workspace > 0 ? emitter.statistic(workspace) : Address()});
  emitter.finish_gradient(token);
  if (position_) emitter.finish_gradient(position);
  return {};
}

}  // namespace motley
