#pragma once
// Small engines with random parameters, for tests of whole models.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/philox.h"
#include "worker/engine/engine.h"
#include "worker/engine/weights_hash.h"

namespace motley::testing {

/// Odd sizes everywhere, so that no tail of a kernel goes unseen.
inline ModelSpec tiny_model() {
  ModelSpec model;
  model.layers = 2;
  model.heads = 3;
  model.width = 15;
  model.context = 5;
  model.vocab = 11;
  return model;
}

inline EngineOptions options_for(const ModelSpec& model, std::vector<int> micro_batches,
                                 Numerics numerics = Numerics::kFast) {
  EngineOptions options;
  options.model = model;
  options.numerics = numerics;
  options.micro_batches = std::move(micro_batches);
  options.seed = 1;
  return options;
}

inline std::unique_ptr<Device> device_of(DeviceKind kind, int threads = 1) {
  DeviceSpec spec;
  spec.kind = kind;
  spec.threads = threads;
  auto device = open_device(spec);
  EXPECT_TRUE(device) << device.error().to_string();
  return std::move(*device);
}

inline std::unique_ptr<Engine> engine_on(Device& device, const EngineOptions& options) {
  auto engine = Engine::create(device, options);
  EXPECT_TRUE(engine) << engine.error().to_string();
  return std::move(*engine);
}

/// [samples, context + 1] tokens; the same for the same seed.
inline std::vector<int32_t> random_tokens(const ModelSpec& model, int samples, uint64_t seed) {
  std::vector<int32_t> tokens(static_cast<size_t>(samples) *
                              static_cast<size_t>(model.context + 1));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>(random_u32(seed, RandomUse::kSampling, 0, i) %
                                     static_cast<uint32_t>(model.vocab));
  return tokens;
}

template <class T>
std::span<T> state_of(Engine& engine, Engine::State which) {
  const std::span<std::byte> bytes = *engine.state(which);
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

/// Gives every parameter, gains and biases too, a value of its own: larger than at the start of
/// training, so that every gradient is far from zero.
template <class T>
void randomise_weights(Engine& engine, uint64_t seed) {
  const std::span<T> weights = state_of<T>(engine, Engine::State::kWeight);
  for (const FlatTensor& flat : engine.tensors()) {
    const float centre = flat.tensor.init == Init::kOnes ? 1.0F : 0.0F;
    for (int64_t i = flat.offset; i < flat.offset + flat.elements(); ++i)
      weights[static_cast<size_t>(i)] =
          centre + 0.3F * random_normal(seed, RandomUse::kInit, 9, static_cast<uint64_t>(i));
  }
  ASSERT_TRUE(engine.state_written(Engine::State::kWeight));
}

/// Of an engine that holds a whole model.
inline double gradient_norm_of(Engine& engine, int64_t tokens) {
  return *engine.gradient_norm(tokens, *solo_communicator());
}
inline std::string weights_hash_of(Engine& engine, const ModelSpec& model) {
  std::vector<Ownership> owners;
  for (const LogicalTensor& tensor : logical_tensors(model))
    owners.push_back({tensor.name, whole(tensor.shape), Rank(0)});
  return *weights_xxh3(engine, model, owners, *solo_communicator());
}

/// The gradient as doubles, whatever the engine keeps.
inline std::vector<double> gradient_of(Engine& engine) {
  const GradientSpans spans = *engine.gradients();
  std::vector<double> gradient(spans.floats.begin(), spans.floats.end());
  gradient.insert(gradient.end(), spans.doubles.begin(), spans.doubles.end());
  for (int64_t value : spans.fixed)
    gradient.push_back(std::ldexp(static_cast<double>(value), -engine.exact_exponent()));
  return gradient;
}

}  // namespace motley::testing
