#include "worker/layers/embedding.h"

namespace motley {

Embedding::Embedding(const ModelSpec& model, const ParameterLayout& layout)
    : model_(model),
      token_(layout.range("embed.token.weight")),
      position_(layout.range("embed.position.weight")) {}

Address Embedding::forward(LayerEmitter& emitter, Address input) {
  const int64_t rows = emitter.batch().rows();
  const Address output = emitter.activation(rows * model_.width);
  emitter.emit(EmbeddingForwardArgs{.tokens = input,
                                    .token_table = emitter.parameter(token_),
                                    .position_table = emitter.parameter(position_),
                                    .out = output,
                                    .rows = rows,
                                    .context = model_.context,
                                    .width = model_.width,
                                    .vocab = model_.vocab});
  return output;
}

Address Embedding::backward(LayerEmitter& emitter, Address d_output) {
  const GradientTarget token = emitter.begin_gradient(token_);
  const GradientTarget position = emitter.begin_gradient(position_);
  emitter.emit(EmbeddingBackwardArgs{.tokens = emitter.batch().tokens,
                                     .d_out = d_output,
                                     .token_gradient = token.address,
                                     .position_gradient = position.address,
                                     .rows = emitter.batch().rows(),
                                     .context = model_.context,
                                     .width = model_.width,
                                     .vocab = model_.vocab,
                                     .accumulate = token.accumulate});
  emitter.finish_gradient(token);
  emitter.finish_gradient(position);
  return {};
}

}  // namespace motley
