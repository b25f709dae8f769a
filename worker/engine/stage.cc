#include "worker/engine/stage.h"

#include <algorithm>
#include <memory>
#include <vector>

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

std::unique_ptr<Layer> make_layer(const StageSpec& stage, const ParameterLayout& parameters,
                                  LayerIndex index) {
  const MemberShape shape = stage.shape();
  if (index == 0) return std::make_unique<Embedding>(stage.model, shape, parameters);
  if (index == stage.model.layers + 1)
    return std::make_unique<Head>(stage.model, shape, parameters, stage.padding_rows());
  const StagePlan& layers = stage.layers;
  const Recompute recompute =
      layers.recompute.empty() ? Recompute::kNone
                               : layers.recompute[static_cast<size_t>(index - layers.first_layer)];
  return std::make_unique<Block>(stage.model, shape, parameters, index - 1, recompute);
}

/// Builds one program of a stage.
class StageCompiler {
 public:
  StageCompiler(const StageSpec& stage, const ParameterLayout& parameters,
                const ExchangeLayout& exchange, int samples, bool training)
      : stage_(stage),
        exchange_(exchange),
        builder_(stage.precision),
        emitter_(builder_, micro_batch(samples), emitter_options(training)) {
    for (LayerIndex index = stage.layers.first_layer; index <= stage.layers.last_layer; ++index)
      layers_.push_back({index, make_layer(stage, parameters, index)});
  }

  Address forward();
  void backward(Address output);
  Program finish() { return builder_.finish(stage_.in_flight > 1); }

 private:
  MicroBatch micro_batch(int samples);
  LayerEmitter::Options emitter_options(bool training) const;
  Address in_slot(Bytes offset, int64_t bytes) {
    return builder_.fixed(Segment::kSlot, offset, Bytes(bytes));
  }
  /// What goes to or comes from a neighbouring stage.
  Address boundary(Bytes offset) {
    return in_slot(offset, boundary_elements() * stage_.boundary_element_bytes());
  }
  int64_t boundary_elements() const { return emitter_.batch().rows() * stage_.model.width; }
  void copy(Address from, Address to) {
    builder_.emit(CopyArgs{
        .in = from, .out = to, .bytes = boundary_elements() * stage_.boundary_element_bytes()});
  }

  const StageSpec& stage_;
  const ExchangeLayout& exchange_;
  ProgramBuilder builder_;
  LayerEmitter emitter_;
  std::vector<StageLayer> layers_;
};

MicroBatch StageCompiler::micro_batch(int samples) {
  MicroBatch batch;
  batch.samples = samples;
  batch.context = stage_.model.context;
  batch.position = in_slot(exchange_.position, 2 * sizeof(int64_t));
  if (stage_.has_embedding()) batch.tokens = in_slot(exchange_.tokens, batch.rows() * 4);
  if (stage_.has_head()) {
    batch.targets = in_slot(exchange_.targets, batch.rows() * 4);
    batch.losses = in_slot(exchange_.losses, batch.rows() * stage_.element_bytes());
  }
  batch.overflow = builder_.fixed(Segment::kExchange, exchange_.overflow, Bytes(sizeof(int64_t)));
  batch.exponent = builder_.fixed(Segment::kExchange, exchange_.exponent, Bytes(sizeof(int32_t)));
  if (stage_.scale_loss)
    batch.loss_scale =
        builder_.fixed(Segment::kExchange, exchange_.loss_scale, Bytes(sizeof(double)));
  return batch;
}

LayerEmitter::Options StageCompiler::emitter_options(bool training) const {
  return {.numerics = stage_.numerics,
          .training = training,
          .kind = stage_.kind,
          .threads = stage_.threads,
          .shape = stage_.shape(),
          .dropout = training ? stage_.model.dropout : 0,
          .seed = stage_.seed};
}

Address StageCompiler::forward() {
  ResidualSum activation{stage_.has_embedding() ? emitter_.batch().tokens
                                                : boundary(exchange_.input)};
  for (const StageLayer& stage_layer : layers_) {
    builder_.set_layer(stage_layer.index);
    activation = stage_layer.layer->forward(emitter_, activation);
  }
  const Address output = emitter_.add_up(activation, boundary_elements());
  if (!stage_.has_head()) copy(output, boundary(exchange_.output));
  builder_.begin_backward();
  return output;
}

void StageCompiler::backward(Address output) {
  Address gradient = stage_.has_head() ? output : boundary(exchange_.output);
  for (auto stage_layer = layers_.rbegin(); stage_layer != layers_.rend(); ++stage_layer) {
    builder_.set_layer(stage_layer->index);
    gradient = stage_layer->layer->backward(emitter_, gradient);
  }
  if (!stage_.has_embedding()) copy(gradient, boundary(exchange_.d_input));
}

Bytes aligned(Bytes bytes) { return Bytes((bytes.value() + 63) / 64 * 64); }

}  // namespace

int64_t StageSpec::padding_rows() const {
  return has_head() ? vocabulary_padding(shape().vocabulary.count, kind, precision) : 0;
}

int64_t rounded_elements(const StageSpec& stage, const ParameterLayout& parameters) {
  if (!is_reduced(stage.precision)) return 0;
  if (!stage.has_head()) return parameters.elements();
  const ParameterRange table = parameters.range("embed.token.weight");
  return std::max(parameters.elements(),
                  table.offset + table.count + stage.padding_rows() * stage.model.width);
}

ExchangeLayout::ExchangeLayout(const StageSpec& stage, int largest)
    : rows(static_cast<int64_t>(largest) * stage.model.context) {
  const auto take = [](Bytes* end, int64_t bytes) {
    const Bytes offset = *end;
    *end = aligned(*end + Bytes(bytes));
    return offset;
  };
  const int64_t tokens_size = stage.has_embedding() ? rows * 4 : 0;
  const int64_t targets_size = stage.has_head() ? rows * 4 : 0;
  const int64_t boundary = rows * stage.model.width * stage.boundary_element_bytes();
  position = take(&slot_size, 2 * sizeof(int64_t));
  tokens = take(&slot_size, tokens_size);
  targets = take(&slot_size, targets_size);
  losses = take(&slot_size, stage.has_head() ? rows * stage.element_bytes() : 0);
  input = take(&slot_size, stage.has_embedding() ? 0 : boundary);
  output = take(&slot_size, stage.has_head() ? 0 : boundary);
  d_input = take(&slot_size, stage.has_embedding() ? 0 : boundary);
  overflow = take(&common_size, sizeof(int64_t));
  loss_scale = take(&common_size, sizeof(double));
  exponent = take(&common_size, sizeof(int32_t));
  landing = take(&common_size, stage.kind == DeviceKind::kCuda ? 2 * losses.value() : 0);
}

Program compile_training(const StageSpec& stage, const ParameterLayout& parameters,
                         const ExchangeLayout& exchange, int samples) {
  StageCompiler compiler(stage, parameters, exchange, samples, true);
  compiler.backward(compiler.forward());
  return compiler.finish();
}

Program compile_forward(const StageSpec& stage, const ParameterLayout& parameters,
                        const ExchangeLayout& exchange, int samples, Address* output) {
  StageCompiler compiler(stage, parameters, exchange, samples, false);
  *output = compiler.forward();
  return compiler.finish();
}

}  // namespace motley
