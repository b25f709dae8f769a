// What an engine promises besides correct mathematics.

#include "worker/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/hash.h"
#include "tests/unit/worker/engine/engine_fixture.h"
#include "tests/unit/worker/engine/foreign_device.h"

namespace motley::testing {
namespace {

using ::testing::HasSubstr;

std::span<const int32_t> samples_of(const std::vector<int32_t>& tokens, const ModelSpec& model,
                                    int first, int count) {
  const auto length = static_cast<size_t>(model.context) + 1;
  return std::span(tokens).subspan(static_cast<size_t>(first) * length,
                                   static_cast<size_t>(count) * length);
}

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value * value;
  return std::sqrt(sum);
}

/// |a - b| / |b|.
double relative_distance(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> difference(a.size());
  for (size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return norm_of(difference) / norm_of(b);
}

TEST(Engine, AccumulatesMicroBatchesToTheGradientOfTheWholeBatch) {
  const auto device = device_of(DeviceKind::kCpu, 2);
  const auto engine = engine_on(*device, options_for(tiny_model(), {8, 3, 2}));
  randomise_weights<float>(*engine, 3);
  const auto tokens = random_tokens(tiny_model(), 8, 4);
  engine->begin_step();
  ASSERT_TRUE(run_micro_batch(*engine, tokens, 8));
  const std::vector<double> whole = gradient_of(*engine);
  const LossSums whole_sums = *engine->sums();

  engine->begin_step();
  ASSERT_TRUE(run_micro_batch(*engine, samples_of(tokens, tiny_model(), 0, 3), 3));
  ASSERT_TRUE(run_micro_batch(*engine, samples_of(tokens, tiny_model(), 3, 3), 3));
  ASSERT_TRUE(run_micro_batch(*engine, samples_of(tokens, tiny_model(), 6, 2), 2));
  EXPECT_LT(relative_distance(gradient_of(*engine), whole), 1e-5);
  EXPECT_NEAR(engine->sums()->loss, whole_sums.loss, 1e-5 * whole_sums.loss);
  EXPECT_EQ(engine->sums()->tokens, 8 * 5);
}

TEST(Engine, AStepAllocatesNothing) {
  for (const Numerics numerics : {Numerics::kFast, Numerics::kExact}) {
    const auto device = device_of(DeviceKind::kCpu, 2);
    const auto engine = engine_on(*device, options_for(tiny_model(), {4, 3}, numerics));
    const auto tokens = random_tokens(tiny_model(), 4, 4);
    const int64_t before = device->allocation_count();
    engine->begin_step();
    ASSERT_TRUE(run_micro_batch(*engine, tokens, 4));
    ASSERT_TRUE(run_micro_batch(*engine, samples_of(tokens, tiny_model(), 0, 3), 3));
    ASSERT_TRUE(evaluate_all(*engine, tokens, 4));
    ASSERT_TRUE(engine->gradients());
    ASSERT_TRUE(engine->gradient_norm(35, *solo_communicator()));
    ASSERT_TRUE(engine->update(1, 1e-3, 35, 1.0));
    EXPECT_EQ(device->allocation_count(), before);
  }
}

TEST(Engine, MemoryIsWhatWasEstimatedAndAllocated) {
  for (const Numerics numerics : {Numerics::kFast, Numerics::kExact}) {
    ModelSpec model = tiny_model();
    model.vocab = 300;  // logits and embedding gradients of different weight
    const auto estimate =
        estimate_memory(options_for(model, {}, numerics), {DeviceKind::kCuda, Precision::kFp64}, 9);
    ASSERT_EQ(estimate.size(), 9u);
    for (int samples = 1; samples <= 9; ++samples) {
      ForeignDevice device;
      const auto engine = engine_on(device, options_for(model, {samples}, numerics));
      const MemoryPoint& point = estimate[static_cast<size_t>(samples) - 1];
      EXPECT_EQ(point.micro_batch, samples);
      EXPECT_EQ(point.total(), device.allocated());
      EXPECT_EQ(point.fixed, engine->memory().fixed);
      EXPECT_EQ(point.activations, engine->memory().activations);
    }
  }
}

/// Whatever a rank exchanges, its host memory is what was estimated, and no step allocates more.
TEST(Engine, HostMemoryIsWhatWasEstimated) {
  for (const bool gradients : {false, true}) {
    for (const bool weights : {false, true}) {
      ForeignDevice device;
      MemoryAccount account;
      EngineOptions options = options_for(tiny_model(), {2});
      options.exchanges_gradients = gradients;
      options.exchanges_weights = weights;
      // Of a GPU, whose memory is apart.
      const MemoryEstimate estimate =
          estimate_engine(options, {DeviceKind::kCuda, Precision::kFp64});
      options.account = &account;
      const auto engine = engine_on(device, options);
      const int64_t before = device.allocation_count();
      engine->begin_step();
      ASSERT_TRUE(run_micro_batch(*engine, random_tokens(tiny_model(), 2, 4), 2));
      ASSERT_TRUE(engine->sums());
      if (gradients) {
        ASSERT_TRUE(engine->gradients());
      }
      gradient_norm_of(*engine, 10);
      ASSERT_TRUE(engine->update(1, 1e-3, 10, 1));
      if (weights) {
        ASSERT_TRUE(engine->state(Engine::State::kWeight));
      }
      EXPECT_EQ(account.peak_of(MemoryUse::kHost), estimate.host);
      EXPECT_EQ(account.peak_of(MemoryUse::kDevice), estimate.on_device());
      EXPECT_EQ(device.allocation_count(), before);
      weights_hash_of(*engine, tiny_model());
      EXPECT_EQ(account.peak_of(MemoryUse::kHost), estimate.host) << "for a hash";
    }
  }
}

/// What a step of a rank without others moves: samples in; losses, a flag and sums of squares out.
/// It waits where the host needs a number: for these sums and for those.
TEST(Engine, AStepLeavesGradientsAndWeightsOnTheDevice) {
  ForeignDevice device;
  const ModelSpec model = tiny_model();
  const auto engine = engine_on(device, options_for(model, {2}));
  const Bytes in = device.copied_in(), out = device.copied_out();
  const int64_t waits = device.waits();
  engine->begin_step();
  for (const int seed : {4, 5, 6})
    ASSERT_TRUE(run_micro_batch(*engine, random_tokens(model, 2, static_cast<uint64_t>(seed)), 2));
  EXPECT_EQ(device.waits(), waits);
  ASSERT_TRUE(engine->sums());
  gradient_norm_of(*engine, 30);
  ASSERT_TRUE(engine->update(1, 1e-3, 30, 1));
  EXPECT_EQ(device.waits(), waits + 2);
  const auto tensors = static_cast<int64_t>(logical_tensors(model).size());
  EXPECT_EQ(device.copied_out() - out, Bytes(3 * 2 * model.context * 8 + 8 + tensors * 8));
  EXPECT_LE(device.copied_in() - in, Bytes(3 * (3 * 64 + 2 * 2 * model.context * 4)));
}

/// While a micro-batch is taken through its backward pass the next one is put to the device.
TEST(Engine, AForwardPassWaitsForNoBackwardPass) {
  ForeignDevice device;
  const ModelSpec model = tiny_model();
  const auto engine = engine_on(device, options_for(model, {2}));
  engine->begin_step();
  for (const int seed : {4, 5, 6, 7}) {
    const int64_t before = device.enqueued();
    const std::vector<int32_t> tokens = random_tokens(model, 2, static_cast<uint64_t>(seed));
    ASSERT_TRUE(engine->put_samples(0, {.tokens = tokens, .samples = 2}));
    ASSERT_TRUE(engine->forward(0, 2));
    EXPECT_LT(device.done(), before) << "of the backward pass something is left";
    ASSERT_TRUE(engine->backward(0, 2));
  }
}

/// A smaller last micro-batch shares the arena: the estimate for the largest holds for all.
TEST(Engine, MemoryGrowsWithTheMicroBatch) {
  ModelSpec model = tiny_model();
  for (const Numerics numerics : {Numerics::kFast, Numerics::kExact}) {
    for (const int vocab : {2, 50, 1000}) {
      model.vocab = vocab;
      const auto points = estimate_memory(options_for(model, {}, numerics), {.threads = 3}, 16);
      for (size_t i = 1; i < points.size(); ++i) {
        EXPECT_GE(points[i].activations, points[i - 1].activations) << vocab << ", " << i + 1;
        EXPECT_GT(points[i].total(), points[i - 1].total());
      }
    }
  }
}

TEST(Engine, RefusesWhatExceedsTheLimit) {
  const auto device = device_of(DeviceKind::kCpu);
  EngineOptions options = options_for(tiny_model(), {4});
  const Bytes needed = engine_on(*device, options)->memory().total();
  options.memory_limit = needed;
  EXPECT_TRUE(Engine::create(*device, options));
  options.memory_limit = Bytes(needed.value() - 1);
  const int64_t before = device->allocation_count();
  const auto refused = Engine::create(*device, options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(refused.error().message, HasSubstr("micro-batch 4 needs"));
  EXPECT_EQ(device->allocation_count(), before);
}

TEST(Engine, RefusesAnImpossibleModel) {
  const auto device = device_of(DeviceKind::kCpu);
  ModelSpec model = tiny_model();
  model.width = 16;
  const auto refused = Engine::create(*device, options_for(model, {1}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidSpec);
}

TEST(Engine, NamesATokenOutsideTheVocabulary) {
  const auto device = device_of(DeviceKind::kCpu);
  const auto engine = engine_on(*device, options_for(tiny_model(), {2}));
  auto tokens = random_tokens(tiny_model(), 2, 1);
  for (const int32_t bad : {11, -1}) {
    tokens[7] = bad;
    const auto refused = run_micro_batch(*engine, tokens, 2);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidSpec);
    EXPECT_THAT(refused.error().message, HasSubstr("token " + std::to_string(bad)));
  }
}

TEST(Engine, EvaluatesAnyNumberOfSamplesAndLeavesGradientsAlone) {
  const auto device = device_of(DeviceKind::kCpu);
  const auto engine = engine_on(*device, options_for(tiny_model(), {3}));
  randomise_weights<float>(*engine, 3);
  const auto tokens = random_tokens(tiny_model(), 7, 4);
  engine->begin_step();
  ASSERT_TRUE(run_micro_batch(*engine, samples_of(tokens, tiny_model(), 0, 3), 3));
  const std::vector<double> gradient = gradient_of(*engine);
  const double loss_of_three = engine->sums()->loss;
  ASSERT_TRUE(evaluate_all(*engine, tokens, 7));
  EXPECT_EQ(gradient_of(*engine), gradient);
  EXPECT_EQ(engine->sums()->tokens, 10 * 5);

  double one_by_one = loss_of_three;
  for (int sample = 0; sample < 7; ++sample) {
    engine->begin_step();
    ASSERT_TRUE(evaluate_all(*engine, samples_of(tokens, tiny_model(), sample, 1), 1));
    one_by_one += engine->sums()->loss;
  }
  engine->begin_step();
  ASSERT_TRUE(evaluate_all(*engine, tokens, 7));
  EXPECT_NEAR(loss_of_three + engine->sums()->loss, one_by_one, 1e-5 * one_by_one);
}

TEST(Engine, LogitsGiveTheLoss) {
  const ModelSpec model = tiny_model();
  const auto device = device_of(DeviceKind::kCpu);
  const auto engine = engine_on(*device, options_for(model, {2}));
  randomise_weights<float>(*engine, 3);
  const auto tokens = random_tokens(model, 1, 4);
  const auto logits = engine->logits(std::span(tokens).first(5), 1);
  ASSERT_TRUE(logits);
  ASSERT_EQ(logits->size(), 5u * 11);
  double loss = 0;
  for (size_t row = 0; row < 5; ++row) {
    double sum = 0;
    for (size_t i = 0; i < 11; ++i) sum += std::exp((*logits)[row * 11 + i]);
    loss += std::log(sum) - (*logits)[row * 11 + static_cast<size_t>(tokens[row + 1])];
  }
  engine->begin_step();
  ASSERT_TRUE(evaluate_all(*engine, tokens, 1));
  EXPECT_NEAR(engine->sums()->loss, loss, 1e-5 * loss);
}

TEST(Engine, AttentionIsCausal) {
  const ModelSpec model = tiny_model();
  const auto device = device_of(DeviceKind::kCpu);
  const auto engine = engine_on(*device, options_for(model, {1}));
  randomise_weights<float>(*engine, 3);
  std::vector<int32_t> inputs = {1, 2, 3, 4, 5};
  const std::vector<float> before = *engine->logits(inputs, 1);
  inputs[3] = 9;
  const std::vector<float> after = *engine->logits(inputs, 1);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 3 * 11, after.begin()));
  EXPECT_FALSE(std::equal(before.begin() + 3 * 11, before.end(), after.begin() + 3 * 11));
}

TEST(Engine, StartsFromTheModelsInitialValues) {
  const ModelSpec model = tiny_model();
  const auto device = device_of(DeviceKind::kCpu, 2);
  const auto engine = engine_on(*device, options_for(model, {1}));
  const auto weights = state_of<float>(*engine, Engine::State::kWeight);
  int number = 0;
  for (const FlatTensor& flat : engine->tensors()) {
    for (int64_t i = 0; i < flat.elements(); ++i)
      ASSERT_EQ(weights[static_cast<size_t>(flat.offset + i)],
                initial_value(model, flat.tensor, number, i, 1))
          << flat.tensor.name;
    ++number;
  }
  EXPECT_EQ(weights_hash_of(*engine, model), xxh3_64_hex(weights.data(), weights.size_bytes()));
  for (const auto moment : {Engine::State::kAdamM, Engine::State::kAdamV})
    for (float value : state_of<float>(*engine, moment)) ASSERT_EQ(value, 0.0F);
}

/// One step by the formulas of the paper, in double.
TEST(Engine, UpdateIsAdamWOnTheMeanGradient) {
  ForeignDevice device;
  EngineOptions options = options_for(tiny_model(), {2});
  options.optimizer = {
      .type = "adamw", .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.5};
  const auto engine = engine_on(device, options);
  randomise_weights<double>(*engine, 3);
  const auto start = state_of<double>(*engine, Engine::State::kWeight);
  const std::vector<double> old(start.begin(), start.end());
  engine->begin_step();
  ASSERT_TRUE(run_micro_batch(*engine, random_tokens(tiny_model(), 2, 4), 2));
  const std::vector<double> gradient = gradient_of(*engine);
  const double norm = gradient_norm_of(*engine, 10);
  EXPECT_NEAR(norm, norm_of(gradient) / 10, 1e-12 * norm);
  ASSERT_TRUE(engine->update(3, 0.1, 10, 0.25));
  const auto updated = state_of<double>(*engine, Engine::State::kWeight);
  for (const FlatTensor& flat : engine->tensors()) {
    for (int64_t i = flat.offset; i < flat.offset + flat.elements(); ++i) {
      const auto at = static_cast<size_t>(i);
      const double g = gradient[at] * 0.25 / 10;
      const double m = 0.2 * g / (1 - std::pow(0.8, 3));
      const double v = 0.1 * g * g / (1 - std::pow(0.9, 3));
      const double decay = flat.tensor.decay ? 0.5 : 0;
      const double expected = old[at] - 0.1 * (m / (std::sqrt(v) + 1e-3) + decay * old[at]);
      ASSERT_NEAR(updated[at], expected, 1e-12) << flat.tensor.name;
    }
  }
}

TEST(Engine, HoldsTheSecondMomentWithItsCorrection) {
  ForeignDevice device;
  EngineOptions options = options_for(tiny_model(), {2});
  options.optimizer = {.beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0};
  const auto engine = engine_on(device, options);
  engine->hold_second_moment_after(1);
  const auto step = [&](int64_t number) {
    engine->begin_step();
    ASSERT_TRUE(run_micro_batch(*engine, random_tokens(tiny_model(), 2, 4), 2));
    gradient_of(*engine);
    ASSERT_TRUE(engine->update(number, 0.1, 10, 1));
  };
  const auto copy_of = [&](Engine::State which) {
    const auto view = state_of<double>(*engine, which);
    return std::vector<double>(view.begin(), view.end());
  };
  step(1);
  const std::vector<double> second = copy_of(Engine::State::kAdamV);
  const std::vector<double> old = copy_of(Engine::State::kWeight);
  step(2);
  EXPECT_EQ(copy_of(Engine::State::kAdamV), second);
  const std::vector<double> first = copy_of(Engine::State::kAdamM);
  const std::vector<double> updated = copy_of(Engine::State::kWeight);
  for (size_t i = 0; i < updated.size(); ++i)
    ASSERT_NEAR(updated[i],
                old[i] - 0.1 * (first[i] / (1 - 0.64)) / (std::sqrt(second[i] / 0.1) + 1e-3), 1e-12)
        << i;
  EXPECT_EQ(engine->steps_held(), 1);

  // Updated again, as where a later attempt compresses nothing: two updates in three steps.
  const auto resumed = engine_on(device, options);
  resumed->set_steps_held(1);
  resumed->begin_step();
  ASSERT_TRUE(run_micro_batch(*resumed, random_tokens(tiny_model(), 2, 4), 2));
  const std::vector<double> gradient = [&] {
    const auto view = resumed->gradients()->doubles;
    return std::vector<double>(view.begin(), view.end());
  }();
  const auto before = state_of<double>(*resumed, Engine::State::kWeight);
  const std::vector<double> weights(before.begin(), before.end());
  ASSERT_TRUE(resumed->update(3, 0.1, 10, 1));
  const auto after = state_of<double>(*resumed, Engine::State::kWeight);
  for (size_t i = 0; i < after.size(); ++i) {
    const double g = gradient[i] / 10;
    const double m = 0.2 * g / (1 - std::pow(0.8, 3)), v = 0.1 * g * g / (1 - 0.81);
    ASSERT_NEAR(after[i], weights[i] - 0.1 * m / (std::sqrt(v) + 1e-3), 1e-12) << i;
  }
}

TEST(Engine, ProfilersSeePassesAndTheirLayers) {
  ForeignDevice device;
  const auto engine = engine_on(device, options_for(tiny_model(), {2}));
  engine->begin_step();
  const std::string before = device.ranges();
  ASSERT_TRUE(run_micro_batch(*engine, random_tokens(tiny_model(), 2, 4), 2));
  ASSERT_TRUE(engine->gradients());
  ASSERT_TRUE(engine->update(1, 0.1, 10, 1));
  EXPECT_EQ(device.ranges().substr(before.size()),
            "(forward(embedding)(block 0)(block 1)(head))"
            "(backward(head)(block 1)(block 0)(embedding))(update)");
}

/// The losses of three steps and the weights' hash after them, gradients passing through the host
/// as if summed over ranks.
std::string hash_after_three_steps(Device& device, const EngineOptions& options,
                                   bool staged = false) {
  const auto engine = engine_on(device, options);
  randomise_weights<double>(*engine, 3);
  std::string losses;
  for (int step = 1; step <= 3; ++step) {
    engine->begin_step();
    for (const uint64_t seed : {4, 5})
      EXPECT_TRUE(run_micro_batch(*engine, random_tokens(tiny_model(), 2, seed), 2));
    const LossSums sums = *engine->sums();
    losses += std::to_string(sums.loss) + ", " + std::to_string(sums.loss_fixed) + "; ";
    const GradientSpans spans = staged ? *engine->staged_gradients() : *engine->gradients();
    const ParameterRange all{0, engine->held_elements()};
    if (staged) {
      EXPECT_TRUE(spans.staged->wait(std::span(&all, 1)));
    }
    for (double& value : spans.doubles) value *= 2;
    for (int64_t& value : spans.fixed) value *= 2;
    if (staged) {
      EXPECT_TRUE(spans.staged->give_back(std::span(&all, 1)));
    }
    const double norm = gradient_norm_of(*engine, 20);
    EXPECT_TRUE(engine->update(step, 1e-2, 20, 1 / norm));
    engine->set_exact_exponent(engine->next_exact_exponent(false));
  }
  return losses + weights_hash_of(*engine, tiny_model());
}

/// Wherever memory that the host cannot reach has its state.
TEST(Engine, ForeignMemoryGivesTheSameBits) {
  for (const Numerics numerics : {Numerics::kFast, Numerics::kExact}) {
    EngineOptions options = options_for(tiny_model(), {2}, numerics);
    const std::string expected =
        hash_after_three_steps(*device_of(DeviceKind::kReference), options);
    for (const bool host_optimizer : {false, true}) {
      for (const bool managed : {false, true}) {
        options.host_optimizer = host_optimizer;
        options.managed_memory = managed;
        ForeignDevice foreign;
        EXPECT_EQ(hash_after_three_steps(foreign, options), expected) << host_optimizer << managed;
        ForeignDevice other;
        EXPECT_EQ(hash_after_three_steps(other, options, true), expected)
            << host_optimizer << managed;
      }
    }
  }
}

/// States read and written piece by piece, in an order that moves the window to and fro, on memory
/// that is larger than the window.
TEST(Engine, StatesInPieces) {
  ForeignDevice device;
  ModelSpec model = tiny_model();
  model.vocab = 100'000;
  const auto engine = engine_on(device, options_for(model, {1}));
  const auto size = engine->held_elements() * 8;
  ASSERT_GT(size, 9 << 20);
  for (const auto which : {Engine::State::kWeight, Engine::State::kAdamV}) {
    EXPECT_FALSE(engine->state_in_reach(which));
    const std::vector<double> written = {1, 2, 3, 4};
    const auto bytes = std::as_bytes(std::span(written));
    for (const int64_t at : {size - 32, int64_t{0}, int64_t{8 << 20} - 16})
      ASSERT_TRUE(engine->write_state(which, Bytes(at), bytes));
    ASSERT_TRUE(engine->state_written(which));
    const std::span<const double> view = state_of<double>(*engine, which);
    for (const int64_t at : {int64_t{8 << 20} - 16, size - 32, int64_t{0}}) {
      EXPECT_TRUE(std::equal(written.begin(), written.end(), view.begin() + at / 8)) << at;
      std::vector<double> read(6);
      const int64_t before = std::max<int64_t>(at - 16, 0);
      ASSERT_TRUE(
          engine->read_state(which, Bytes(before), std::as_writable_bytes(std::span(read))));
      for (size_t i = 0; i < read.size(); ++i)
        EXPECT_EQ(read[i], view[static_cast<size_t>(before / 8) + i]) << at;
    }
  }
}

TEST(Engine, ManagedMemoryIsTheHostsInsteadOfTheDevices) {
  const ModelSpec model = tiny_model();
  const auto weights = Bytes(parameter_count(model) * static_cast<int64_t>(sizeof(double)));
  EngineOptions options = options_for(model, {2});
  Bytes on_device[2], in_host[2];
  for (const bool managed : {false, true}) {
    MemoryAccount account;
    ForeignDevice device;
    options.managed_memory = managed;
    options.account = &account;
    const auto engine = engine_on(device, options);
    EXPECT_EQ(engine->memory().total(), account.peak_of(MemoryUse::kDevice));
    on_device[managed] = engine->memory().total();
    in_host[managed] = account.peak_of(MemoryUse::kHost);
  }
  EXPECT_EQ(on_device[1], on_device[0] - weights * 3) << "weights and two moments";
  EXPECT_EQ(in_host[1], in_host[0] + weights * 3);

  options.account = nullptr;
  const DeviceTraits gpu{DeviceKind::kCuda, Precision::kFp32};
  const MemoryEstimate managed = estimate_engine(options, gpu);
  options.managed_memory = false;
  const MemoryEstimate plain = estimate_engine(options, gpu);
  const Bytes moved(parameter_count(model) * 3 * static_cast<int64_t>(sizeof(float)));
  EXPECT_EQ(managed.total(), plain.total() - moved);
  EXPECT_EQ(managed.host_total(), plain.host_total() + moved);
  const Bytes on_cpu = estimate_engine(options, {}).total();
  options.managed_memory = true;
  EXPECT_EQ(estimate_engine(options, {}).total(), on_cpu) << "of a CPU it is the same memory";
}

}  // namespace
}  // namespace motley::testing
