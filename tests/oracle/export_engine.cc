// Writes what the engine computes, for the PyTorch oracle to compute again:
//
//   motley_engine_export LAYERS HEADS WIDTH CONTEXT VOCAB SAMPLES FOLDER
//
// FOLDER/case.json: the model, its tensors in order, the optimizer, losses. FOLDER/weights.f32 and
// gradients.f32: flat buffers at the start; the gradient is of the mean loss. FOLDER/tokens.i32:
// [steps, samples, context + 1].

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/philox.h"
#include "worker/engine/engine.h"
#include "worker/optimizer/schedule.h"

namespace motley {
namespace {

constexpr int kSteps = 20;
constexpr double kClip = 0.5;  // below the first steps' norms, so that clipping acts
constexpr uint64_t kSeed = 20;

struct Case {
  ModelSpec model;
  int samples = 0;
  ScheduleSpec schedule{.type = "cosine", .warmup = 5, .min_lr = 1e-4};
  OptimizerSpec optimizer;
};

template <class T>
void write(const std::string& path, std::span<const T> values) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size_bytes()));
}

/// Larger than at the start of training, biases and gains too: no gradient hides behind a zero.
void randomise(Engine& engine, std::span<float> weights) {
  for (const FlatTensor& flat : engine.tensors()) {
    const float centre = flat.tensor.init == Init::kOnes ? 1.0F : 0.0F;
    for (int64_t i = flat.offset; i < flat.offset + flat.elements(); ++i)
      weights[static_cast<size_t>(i)] =
          centre + 0.1F * random_normal(kSeed, RandomUse::kInit, 0, static_cast<uint64_t>(i));
  }
}

std::vector<int32_t> random_tokens(const Case& test) {
  std::vector<int32_t> tokens(
      static_cast<size_t>(kSteps * test.samples * (test.model.context + 1)));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>(random_u32(kSeed, RandomUse::kSampling, 0, i) %
                                     static_cast<uint32_t>(test.model.vocab));
  return tokens;
}

/// One step's forward and backward, in two unequal micro-batches where there are samples enough.
/// Returns the mean loss.
Result<double> compute(Engine& engine, std::span<const int32_t> tokens, int samples) {
  const size_t length = tokens.size() / static_cast<size_t>(samples);
  const int first = (samples + 1) / 2;
  engine.begin_step();
  MOTLEY_TRY_VOID(
      run_micro_batch(engine, tokens.first(static_cast<size_t>(first) * length), first));
  if (first < samples)
    MOTLEY_TRY_VOID(run_micro_batch(engine, tokens.subspan(static_cast<size_t>(first) * length),
                                    samples - first));
  return engine.sums()->loss / static_cast<double>(engine.sums()->tokens);
}

nlohmann::json description(const Case& test, const Engine& engine,
                           const std::vector<double>& losses) {
  nlohmann::json json;
  json["model"] = {{"layers", test.model.layers},
                   {"heads", test.model.heads},
                   {"width", test.model.width},
                   {"context", test.model.context},
                   {"vocab", test.model.vocab}};
  json["samples"] = test.samples;
  json["losses"] = losses;
  json["optimizer"] = {
      {"lr", test.optimizer.lr},        {"beta1", test.optimizer.beta1},
      {"beta2", test.optimizer.beta2},  {"eps", test.optimizer.eps},
      {"clip", test.optimizer.clip},    {"weight_decay", test.optimizer.weight_decay},
      {"warmup", test.schedule.warmup}, {"min_lr", test.schedule.min_lr}};
  for (const FlatTensor& flat : engine.tensors())
    json["tensors"].push_back({{"name", flat.tensor.name}, {"shape", flat.tensor.shape}});
  return json;
}

Result<Unit> export_case(const Case& test, const std::string& folder) {
  DeviceSpec spec;
  spec.kind = DeviceKind::kCpu;
  spec.threads = 2;
  MOTLEY_TRY(const auto device, open_device(spec));
  EngineOptions options;
  options.model = test.model;
  options.micro_batches = {(test.samples + 1) / 2, std::max(1, test.samples / 2)};
  options.optimizer = test.optimizer;
  MOTLEY_TRY(const auto engine, Engine::create(*device, options));
  MOTLEY_TRY(const std::span<std::byte> state, engine->state(Engine::State::kWeight));
  const std::span<float> weights{reinterpret_cast<float*>(state.data()), state.size() / 4};
  randomise(*engine, weights);
  write<float>(folder + "/weights.f32", weights);
  const std::vector<int32_t> tokens = random_tokens(test);
  write<int32_t>(folder + "/tokens.i32", tokens);

  std::vector<double> losses;
  const size_t length = tokens.size() / kSteps;
  for (int step = 1; step <= kSteps; ++step) {
    const auto batch = std::span(tokens).subspan(static_cast<size_t>(step - 1) * length, length);
    MOTLEY_TRY(const double loss, compute(*engine, batch, test.samples));
    losses.push_back(loss);
    const int64_t count = engine->sums()->tokens;
    MOTLEY_TRY(const GradientSpans spans, engine->gradients());
    if (step == 1) {
      std::vector<float> mean(spans.floats.begin(), spans.floats.end());
      for (float& value : mean) value /= static_cast<float>(count);
      write<float>(folder + "/gradients.f32", mean);
    }
    MOTLEY_TRY(const double norm, engine->gradient_norm(count, *solo_communicator()));
    const double lr = learning_rate(test.optimizer, test.schedule, step, kSteps);
    MOTLEY_TRY_VOID(engine->update(step, lr, count, clip_factor(test.optimizer.clip, norm)));
  }
  std::ofstream(folder + "/case.json") << description(test, *engine, losses).dump(1);
  return Unit{};
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  if (argc != 8) {
    std::cerr << "usage: motley_engine_export LAYERS HEADS WIDTH CONTEXT VOCAB SAMPLES FOLDER\n";
    return 2;
  }
  motley::Case test;
  test.model.layers = std::atoi(argv[1]);
  test.model.heads = std::atoi(argv[2]);
  test.model.width = std::atoi(argv[3]);
  test.model.context = std::atoi(argv[4]);
  test.model.vocab = std::atoi(argv[5]);
  test.samples = std::atoi(argv[6]);
  test.optimizer.lr = 1e-3;
  test.optimizer.clip = motley::kClip;
  const auto done = motley::export_case(test, argv[7]);
  if (done) return 0;
  std::cerr << "motley_engine_export: " << done.error().to_string() << "\n";
  return motley::exit_code(done.error().code);
}
