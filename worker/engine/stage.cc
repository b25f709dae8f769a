#include "worker/engine/stage.h"

#include <memory>

#include "worker/layers/block.h"
#include "worker/layers/embedding.h"
#include "worker/layers/head.h"

namespace motley {

namespace {

/// A layer with its number.
struct StageLayer {
  LayerIndex index;
  std::unique_ptr<Layer> layer;
};

std::vector<StageLayer> make_layers(const ModelSpec& model, const ParameterLayout& parameters) {
  std::vector<StageLayer> layers;
  layers.push_back({0, std::make_unique<Embedding>(model, parameters)});
  for (int block = 0; block < model.layers; ++block)
    layers.push_back({block + 1, std::make_unique<Block>(model, parameters, block)});
  layers.push_back({model.layers + 1, std::make_unique<Head>(model, parameters)});
  return layers;
}

MicroBatch micro_batch(ProgramBuilder& builder, const StageSpec& stage,
                       const ExchangeLayout& exchange, int samples) {
  MicroBatch batch;
  batch.samples = samples;
  batch.context = stage.model.context;
  const auto at = [&](Bytes offset, int64_t bytes) {
    return builder.fixed(Segment::kExchange, offset, Bytes(bytes));
  };
  batch.tokens = at(exchange.tokens, batch.rows() * 4);
  batch.targets = at(exchange.targets, batch.rows() * 4);
  batch.losses = at(exchange.losses, batch.rows() * stage.element_bytes);
  batch.overflow = at(exchange.overflow, sizeof(int64_t));
  return batch;
}

LayerEmitter::Options emitter_options(const StageSpec& stage, bool training) {
  return {.numerics = stage.numerics,
          .training = training,
          .threads = stage.threads,
          .exact_exponent = stage.exact_exponent};
}

Address emit_forward(const std::vector<StageLayer>& layers, ProgramBuilder& builder,
                     LayerEmitter& emitter) {
  Address activation = emitter.batch().tokens;
  for (const StageLayer& stage_layer : layers) {
    builder.set_layer(stage_layer.index, false);
    activation = stage_layer.layer->forward(emitter, activation);
  }
  return activation;
}

Bytes aligned(Bytes bytes) { return Bytes((bytes.value() + 63) / 64 * 64); }

}  // namespace

ExchangeLayout::ExchangeLayout(const StageSpec& stage, int largest)
    : rows(static_cast<int64_t>(largest) * stage.model.context) {
  const auto tensors = static_cast<int64_t>(logical_tensors(stage.model).size());
  const auto take = [this](int64_t bytes) {
    const Bytes offset = size;
    size = aligned(size + Bytes(bytes));
    return offset;
  };
  overflow = take(sizeof(int64_t));
  norms = take(tensors * static_cast<int64_t>(sizeof(double)));
  tokens = take(rows * 4);
  targets = take(rows * 4);
  losses = take(rows * stage.element_bytes);
}

Program compile_training(const StageSpec& stage, const ParameterLayout& parameters,
                         const ExchangeLayout& exchange, int samples) {
  const std::vector<StageLayer> layers = make_layers(stage.model, parameters);
  ProgramBuilder builder(stage.element_bytes);
  LayerEmitter emitter(builder, micro_batch(builder, stage, exchange, samples),
                       emitter_options(stage, true));
  Address gradient = emit_forward(layers, builder, emitter);
  for (auto stage_layer = layers.rbegin(); stage_layer != layers.rend(); ++stage_layer) {
    builder.set_layer(stage_layer->index, true);
    gradient = stage_layer->layer->backward(emitter, gradient);
  }
  return builder.finish();
}

Program compile_forward(const StageSpec& stage, const ParameterLayout& parameters,
                        const ExchangeLayout& exchange, int samples, Address* logits) {
  const std::vector<StageLayer> layers = make_layers(stage.model, parameters);
  ProgramBuilder builder(stage.element_bytes);
  LayerEmitter emitter(builder, micro_batch(builder, stage, exchange, samples),
                       emitter_options(stage, false));
  *logits = emit_forward(layers, builder, emitter);
  return builder.finish();
}

}  // namespace motley
