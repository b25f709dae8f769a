// The whole model: against finite differences in float64, and float against float64.

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tests/unit/worker/engine/engine_fixture.h"

namespace motley::testing {
namespace {

constexpr int kSamples = 3;

double loss_at(Engine& engine, const std::vector<int32_t>& tokens) {
  engine.begin_step();
  EXPECT_TRUE(evaluate_all(engine, tokens, kSamples));
  return engine.sums()->loss;
}

/// The derivative by weight `index`, from four points: error O(h^4).
double difference_quotient(Engine& engine, const std::vector<int32_t>& tokens, size_t index) {
  constexpr double h = 2e-3;
  double& weight = state_of<double>(engine, Engine::State::kWeight)[index];
  const double kept = weight;
  const auto loss_with = [&](double offset) {
    weight = kept + offset;
    return loss_at(engine, tokens);
  };
  const double near = loss_with(h) - loss_with(-h);
  const double far = loss_with(2 * h) - loss_with(-2 * h);
  weight = kept;
  return (8 * near - far) / (12 * h);
}

TEST(WholeModel, GradientsEqualFiniteDifferencesInFloat64) {
  const auto device = device_of(DeviceKind::kReference);
  const auto engine = engine_on(*device, options_for(tiny_model(), {kSamples}));
  randomise_weights<double>(*engine, 3);
  const auto tokens = random_tokens(tiny_model(), kSamples, 4);
  engine->begin_step();
  ASSERT_TRUE(run_micro_batch(*engine, tokens, kSamples));
  const std::vector<double> gradient = gradient_of(*engine);

  for (const FlatTensor& flat : engine->tensors()) {
    double largest = 0;
    for (int64_t i = 0; i < flat.elements(); ++i)
      largest = std::max(largest, std::abs(gradient[static_cast<size_t>(flat.offset + i)]));
    // A shift of all keys shifts every score of a row alike, which softmax ignores.
    const bool ignored = flat.tensor.name.ends_with("attention.k.bias");
    ASSERT_EQ(largest < 1e-12, ignored) << flat.tensor.name;
    for (uint64_t probe = 0; probe < 6; ++probe) {
      const auto element =
          random_u32(5, RandomUse::kSampling, 1, probe) % static_cast<uint64_t>(flat.elements());
      const size_t index = static_cast<size_t>(flat.offset) + element;
      // Relative to the tensor: a single element may be near zero by chance.
      EXPECT_NEAR(gradient[index], difference_quotient(*engine, tokens, index),
                  1e-6 * largest + 1e-10)
          << flat.tensor.name << "[" << element << "]";
    }
  }
}

struct Case {
  ModelSpec model;
  int samples;
};

class FloatAgainstFloat64 : public ::testing::TestWithParam<Case> {};

TEST_P(FloatAgainstFloat64, LossAndGradientsAgree) {
  const auto& [model, samples] = GetParam();
  const auto tokens = random_tokens(model, samples, 4);
  const auto reference_device = device_of(DeviceKind::kReference);
  const auto reference = engine_on(*reference_device, options_for(model, {samples}));
  const auto cpu_device = device_of(DeviceKind::kCpu, 2);
  const auto cpu = engine_on(*cpu_device, options_for(model, {samples}));
  randomise_weights<double>(*reference, 3);
  randomise_weights<float>(*cpu, 3);
  for (Engine* engine : {reference.get(), cpu.get()}) {
    engine->begin_step();
    ASSERT_TRUE(run_micro_batch(*engine, tokens, samples));
  }
  EXPECT_NEAR(cpu->sums()->loss, reference->sums()->loss, 1e-5 * reference->sums()->loss);
  const std::vector<double> exact = gradient_of(*reference);
  const std::vector<double> rounded = gradient_of(*cpu);
  const double tokens_count = samples * model.context;
  EXPECT_NEAR(gradient_norm_of(*cpu, 1), gradient_norm_of(*reference, 1),
              1e-4 * gradient_norm_of(*reference, 1));
  for (const FlatTensor& flat : cpu->tensors()) {
    double error = 0, norm = 0;
    for (int64_t i = flat.offset; i < flat.offset + flat.elements(); ++i) {
      const auto at = static_cast<size_t>(i);
      error += std::pow(rounded[at] - exact[at], 2);
      norm += std::pow(exact[at], 2);
    }
    // The gradient of key biases is zero but for rounding.
    EXPECT_LE(std::sqrt(error), 1e-4 * std::sqrt(norm) + 1e-6 * tokens_count) << flat.tensor.name;
  }
}

Case case_of(std::array<int, 5> sizes, int samples) {
  ModelSpec model;
  model.layers = sizes[0];
  model.heads = sizes[1];
  model.width = sizes[2];
  model.context = sizes[3];
  model.vocab = sizes[4];
  return {model, samples};
}

INSTANTIATE_TEST_SUITE_P(Shapes, FloatAgainstFloat64,
                         ::testing::Values(case_of({2, 3, 15, 5, 11}, 3),
                                           case_of({1, 1, 1, 1, 2}, 1),
                                           case_of({1, 2, 34, 67, 131}, 2),
                                           case_of({3, 4, 32, 16, 64}, 5)));

}  // namespace
}  // namespace motley::testing
