// Engines that compute in reduced precision: near the full one, in fewer bytes, with any scale.

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "tests/unit/worker/engine/engine_fixture.h"
#include "worker/engine/elements.h"

namespace motley::testing {
namespace {

constexpr int kBatchSamples = 4;

std::unique_ptr<Device> device_in(Precision precision, int threads = 2) {
  DeviceSpec spec;
  spec.kind = DeviceKind::kCpu;
  spec.threads = threads;
  auto device = open_device(spec, precision);
  EXPECT_TRUE(device) << device.error().to_string();
  return std::move(*device);
}

/// What one step of an engine came to.
struct Step {
  double loss = 0;
  int64_t overflow = 0;
  std::vector<double> gradient;
};

Step step_of(Precision precision, int scale_exponent, Numerics numerics = Numerics::kFast,
             const ModelSpec& model = tiny_model()) {
  const auto device = device_in(precision);
  EngineOptions options = options_for(model, {kBatchSamples}, numerics);
  options.scale_loss = scale_exponent != 0;
  const auto engine = engine_on(*device, options);
  randomise_weights<float>(*engine, 5);
  engine->set_loss_scale_exponent(scale_exponent);
  engine->begin_step();
  EXPECT_TRUE(run_micro_batch(*engine, random_tokens(model, kBatchSamples, 3), kBatchSamples));
  const LossSums sums = *engine->sums();
  return {sums.loss, sums.overflow, gradient_of(*engine)};
}

/// |a - b| / |b|
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

TEST(ReducedPrecision, IsNearTheFullOne) {
  const Step full = step_of(Precision::kFp32, 0);
  const Step bf16 = step_of(Precision::kBf16, 0), fp16 = step_of(Precision::kFp16, 0);
  EXPECT_NEAR(bf16.loss, full.loss, 1e-2 * full.loss);
  EXPECT_NEAR(fp16.loss, full.loss, 1e-3 * full.loss);
  const double of_bf16 = distance(bf16.gradient, full.gradient);
  const double of_fp16 = distance(fp16.gradient, full.gradient);
  EXPECT_LT(of_bf16, 3e-2);
  EXPECT_LT(of_fp16, 4e-3);
  EXPECT_GT(of_bf16, 1e-3) << "nothing was rounded";
  EXPECT_GT(of_fp16, 1e-4) << "nothing was rounded";
}

TEST(ReducedPrecision, Tf32IsFullButForProducts) {
  const Step full = step_of(Precision::kFp32, 0), tf32 = step_of(Precision::kTf32, 0);
  EXPECT_NEAR(tf32.loss, full.loss, 1e-3 * full.loss);
  EXPECT_LT(distance(tf32.gradient, full.gradient), 4e-3);
  EXPECT_GT(distance(tf32.gradient, full.gradient), 1e-5) << "nothing was rounded";
}

TEST(ReducedPrecision, Fp8IsBf16ButForTheProductsOfBlocks) {
  ModelSpec model = tiny_model();
  model.width = 32;
  model.heads = 2;
  model.context = 16;
  const auto step_in = [&](Precision precision) {
    return step_of(precision, 0, Numerics::kFast, model);
  };
  const Step full = step_in(Precision::kFp32), bf16 = step_in(Precision::kBf16);
  const Step fp8 = step_in(Precision::kFp8);
  EXPECT_NEAR(fp8.loss, full.loss, 5e-2 * full.loss);
  EXPECT_LT(distance(fp8.gradient, full.gradient), 0.2);
  EXPECT_GT(distance(fp8.gradient, full.gradient), 3 * distance(bf16.gradient, full.gradient));
  // Whose rows are no multiples of 16 elements.
  EXPECT_EQ(step_of(Precision::kFp8, 0).gradient, step_of(Precision::kBf16, 0).gradient);
}

TEST(ReducedPrecision, AGpuHasRoomForFactorsInEightBits) {
  ModelSpec model = tiny_model();
  model.width = 32;
  model.heads = 2;
  model.context = 16;
  const EngineOptions options = options_for(model, {8});
  const auto total = [&](Precision precision, DeviceKind kind) {
    return estimate_engine(options, {.kind = kind, .precision = precision}).total();
  };
  EXPECT_GT(total(Precision::kFp8, DeviceKind::kCuda), total(Precision::kBf16, DeviceKind::kCuda));
  EXPECT_EQ(total(Precision::kFp8, DeviceKind::kCpu), total(Precision::kBf16, DeviceKind::kCpu))
      << "a CPU rounds what it has widened anyway";
}

TEST(ReducedPrecision, AScaledLossHasTheSameGradient) {
  const std::vector<double> plain = step_of(Precision::kFp32, 0).gradient;
  for (const int exponent : {-3, 1, 10, 15})
    EXPECT_EQ(step_of(Precision::kFp32, exponent).gradient, plain)
        << "a power of two rounds nothing";
  const std::vector<double> fp16 = step_of(Precision::kFp16, 0).gradient;
  EXPECT_LT(distance(step_of(Precision::kFp16, 6).gradient, fp16), 1e-3);
}

TEST(ReducedPrecision, SmallGradientsNeedAScale) {
  // Scaled down they fall out of fp16's range, as those of a large model would unscaled.
  const std::vector<double> full = step_of(Precision::kFp32, 0).gradient;
  EXPECT_GT(distance(step_of(Precision::kFp16, -22).gradient, full), 0.1);
  EXPECT_LT(distance(step_of(Precision::kFp16, 4).gradient, full), 4e-3);
}

TEST(ReducedPrecision, ExactQuantisesTheUnscaledGradient) {
  const Step plain = step_of(Precision::kFp32, 0, Numerics::kExact);
  EXPECT_EQ(step_of(Precision::kFp32, 7, Numerics::kExact).gradient, plain.gradient);
  EXPECT_LT(distance(step_of(Precision::kFp16, 7, Numerics::kExact).gradient, plain.gradient),
            4e-3);
}

TEST(ReducedPrecision, TooLargeAScaleOverflowsAndSaysSo) {
  EXPECT_EQ(step_of(Precision::kFp16, 6).overflow, 0);
  for (const Numerics numerics : {Numerics::kFast, Numerics::kExact})
    EXPECT_EQ(step_of(Precision::kFp16, 17, numerics).overflow, 1);
  EXPECT_EQ(step_of(Precision::kFp32, 17).overflow, 0);
}

TEST(ReducedPrecision, NeedsFewerBytesForWhatItKeepsAndAsManyAsEstimated) {
  ModelSpec model = tiny_model();
  model.width = 48;
  EngineOptions options = options_for(model, {8});
  const MemoryEstimate full = estimate_engine(options, {.precision = Precision::kFp32});
  options.in_flight = 3;
  const MemoryEstimate several = estimate_engine(options, {.precision = Precision::kFp32});
  const MemoryEstimate reduced = estimate_engine(options, {.precision = Precision::kBf16});
  EXPECT_LT(reduced.saved.value(), 0.6 * static_cast<double>(several.saved.value()));
  EXPECT_GT(reduced.fixed, full.fixed) << "weights are there twice";

  MemoryAccount account;
  options.account = &account;
  const auto device = device_in(Precision::kBf16, 1);
  const auto engine = engine_on(*device, options);
  EXPECT_EQ(account.peak(), reduced.total());
}

TEST(ReducedPrecision, AStepAllocatesNothing) {
  const auto device = device_in(Precision::kFp16);
  const auto engine = engine_on(*device, options_for(tiny_model(), {kBatchSamples}));
  const int64_t before = device->allocation_count();
  engine->begin_step();
  ASSERT_TRUE(
      run_micro_batch(*engine, random_tokens(tiny_model(), kBatchSamples, 3), kBatchSamples));
  ASSERT_TRUE(engine->gradients());
  ASSERT_TRUE(engine->update(1, 1e-3, 35, 1.0));
  ASSERT_TRUE(evaluate_all(*engine, random_tokens(tiny_model(), kBatchSamples, 3), kBatchSamples));
  EXPECT_EQ(device->allocation_count(), before);
}

/// Weights are kept in full: steps too small for bf16 add up.
TEST(ReducedPrecision, SmallUpdatesAreNotLost) {
  const auto device = device_in(Precision::kBf16);
  const auto engine = engine_on(*device, options_for(tiny_model(), {kBatchSamples}));
  const std::vector<float> before(state_of<float>(*engine, Engine::State::kWeight).begin(),
                                  state_of<float>(*engine, Engine::State::kWeight).end());
  const auto tokens = random_tokens(tiny_model(), kBatchSamples, 3);
  for (int64_t step = 1; step <= 20; ++step) {
    engine->begin_step();
    ASSERT_TRUE(run_micro_batch(*engine, tokens, kBatchSamples));
    ASSERT_TRUE(engine->gradients());
    ASSERT_TRUE(engine->update(step, 1e-5, 20, 1.0));
  }
  const auto after = state_of<float>(*engine, Engine::State::kWeight);
  const FlatTensor& gain = *std::find_if(
      engine->tensors().begin(), engine->tensors().end(),
      [](const FlatTensor& flat) { return flat.tensor.name == "block.0.norm1.gain"; });
  for (int64_t i = gain.offset; i < gain.offset + gain.elements(); ++i)
    EXPECT_GT(std::abs(after[static_cast<size_t>(i)] - before[static_cast<size_t>(i)]), 5e-5);
}

/// Of every number there is, and of what lies between two of them, infinity and NaN among them.
TEST(ReducedPrecision, ElementsConvertTogetherAsOneByOne) {
  constexpr int64_t kCount = 1 << 16;
  for (const Precision precision : {Precision::kBf16, Precision::kFp16, Precision::kFp8}) {
    std::vector<uint16_t> bits(kCount), together(kCount), one_by_one(kCount);
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
    const Elements stored(std::as_writable_bytes(std::span(bits)), precision);
    std::vector<float> wide(kCount);
    widen_elements(std::as_bytes(std::span(bits)), precision, wide);
    for (int64_t i = 0; i < kCount; ++i) {
      float& value = wide[static_cast<size_t>(i)];
      const auto expected = static_cast<float>(stored.get(i));
      // A double makes a signalling NaN quiet.
      const bool same = std::memcmp(&value, &expected, sizeof(value)) == 0;
      ASSERT_TRUE(same || (std::isnan(value) && std::isnan(expected))) << i;
      value *= 1 + std::ldexp(static_cast<float>(i % 64), -14);
    }
    round_elements(wide, precision, std::as_writable_bytes(std::span(together)));
    Elements rounded(std::as_writable_bytes(std::span(one_by_one)), precision);
    for (int64_t i = 0; i < kCount; ++i) rounded.set(i, wide[static_cast<size_t>(i)]);
    EXPECT_EQ(together, one_by_one);
  }
}

}  // namespace
}  // namespace motley::testing
