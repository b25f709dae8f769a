#include "worker/layers/head.h"

namespace motley {

Head::Head(const ModelSpec& model, const ParameterLayout& layout)
    : model_(model),
      norm_(layout, "norm", model.width),
      tied_({model.width, model.vocab}, layout.range("embed.token.weight"), std::nullopt) {}

Address Head::forward(LayerEmitter& emitter, Address input) {
  const Address logits = tied_.forward(emitter, norm_.forward(emitter, input));
  const MicroBatch& batch = emitter.batch();
  emitter.emit(CrossEntropyArgs{.logits = logits,
                                .targets = batch.targets,
                                .losses = batch.losses,
                                .d_logits = emitter.options().training ? logits : Address(),
                                .rows = batch.rows(),
                                .vocab = model_.vocab});
  return logits;
}

Address Head::backward(LayerEmitter& emitter, Address d_output) {
  return norm_.backward(emitter, tied_.backward(emitter, d_output));
}

}  // namespace motley
