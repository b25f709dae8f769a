#include "worker/layers/head.h"

namespace motley {

Head::Head(const ModelSpec& model, const MemberShape& shape, const ParameterLayout& layout,
           int64_t padding)
    : width_(model.width),
      vocabulary_(shape.vocabulary),
      norm_(layout, "norm", width_),
      tied_({.inputs = width_,
             .outputs = vocabulary_.count,
             .output_stride = logits_stride(vocabulary_.count),
             .padding = padding},
            layout.range("embed.token.weight"), std::nullopt) {}

ResidualSum Head::forward(LayerEmitter& emitter, const ResidualSum& input) {
  normed_ = norm_.forward(emitter, input);
  const Address logits = tied_.forward(emitter, normed_);
  if (emitter.shape().members == 1)
    emit_losses(emitter, logits);
  else
    emit_shared_losses(emitter, logits);
  return {logits};
}

void Head::emit_losses(LayerEmitter& emitter, Address logits) const {
  const MicroBatch& batch = emitter.batch();
  emitter.emit(CrossEntropyArgs{.logits = logits,
                                .targets = batch.targets,
                                .losses = batch.losses,
                                .d_logits = emitter.options().training ? logits : Address(),
                                .rows = batch.rows(),
                                .vocab = vocabulary_.count,
                                .scale = batch.loss_scale,
                                .stride = logits_stride(vocabulary_.count)});
}

void Head::emit_shared_losses(LayerEmitter& emitter, Address logits) const {
  const MicroBatch& batch = emitter.batch();
  const int64_t members = emitter.shape().members;
  const int64_t stats = batch.rows() * 3;
  const Address own = emitter.statistic(stats);
  const Address all = emitter.statistic(members * stats);
  emitter.emit(CrossEntropyPartArgs{.logits = logits,
                                    .targets = batch.targets,
                                    .stats = own,
                                    .rows = batch.rows(),
                                    .vocab = vocabulary_.count,
                                    .first_token = vocabulary_.first,
                                    .stride = logits_stride(vocabulary_.count)});
  emitter.gather_parts(own, all, stats);
  emitter.emit(CrossEntropyCombineArgs{.stats = all,
                                       .logits = logits,
                                       .targets = batch.targets,
                                       .losses = batch.losses,
                                       .d_logits = emitter.options().training ? logits : Address(),
                                       .parts = members,
                                       .rows = batch.rows(),
                                       .vocab = vocabulary_.count,
                                       .first_token = vocabulary_.first,
                                       .scale = batch.loss_scale,
                                       .stride = logits_stride(vocabulary_.count)});
}

Address Head::backward(LayerEmitter& emitter, Address d_output) {
  const Address d_normed = tied_.backward(emitter, normed_, d_output);
  emitter.sum_parts(d_normed, emitter.batch().rows() * width_);
  return norm_.backward(emitter, d_normed);
}

}  // namespace motley
