// Which gradients are final while the last backward pass of a step still runs: what is reported
// stays as it is, and nothing is left out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "tests/support/test_device.h"
#include "tests/unit/worker/engine/engine_fixture.h"
#include "tests/unit/worker/engine/foreign_device.h"
#include "worker/engine/elements.h"
#include "worker/engine/memory_plan.h"

namespace motley::testing {
namespace {

using ::testing::ElementsAre;

/// The samples of each micro-batch of a step.
constexpr int kMicroBatches[] = {2, 2, 1};

/// Blocks of more than a report each; for a GPU that threads of a CPU emulate one of a few
/// elements, for there is one report whatever their number.
ModelSpec model_for(DeviceKind kind, int layers = 4) {
  ModelSpec model = tiny_model();
  if (kind == DeviceKind::kCuda) return model;
  model.layers = layers;
  model.width = 192;
  model.context = 7;
  model.vocab = 101;
  return model;
}

/// The other ranks of the stage have zeros.
class AloneInGroup final : public TensorGroup {
 public:
  Result<Unit> sum(std::span<float>, double flops) override { return note(flops); }
  Result<Unit> sum(std::span<double>, double flops) override { return note(flops); }

  const std::vector<double>& works() const { return works_; }  ///< before each call

 private:
  Result<Unit> note(double flops) {
    works_.push_back(flops);
    return Unit{};
  }

  std::vector<double> works_;
};

void fill(Engine& engine, Boundary boundary, int slot, int samples) {
  Elements elements(engine.view(slot, boundary, samples), engine.precision());
  const int64_t count = static_cast<int64_t>(engine.view(slot, boundary, samples).size()) /
                        reduced_bytes(engine.precision());
  for (int64_t i = 0; i < count; ++i)
    elements.set(i, 0.1F * random_normal(2, RandomUse::kInit, 3, static_cast<uint64_t>(i)));
  ASSERT_TRUE(engine.push(slot, boundary, samples));
}

/// The micro-batches of a step through whatever stage it is; the last one's pass tells `on_final`,
/// if there is one.
void run_micro_batches(Engine& engine, const EngineOptions& options,
                       const GradientsFinal& on_final) {
  const StagePlan stage = options.stage.value_or(whole_model(options.model));
  int slot = 0;
  for (const int& samples : kMicroBatches) {
    const auto tokens = random_tokens(options.model, samples, 3 + static_cast<uint64_t>(slot));
    ASSERT_TRUE(engine.put_samples(slot, {.tokens = tokens, .samples = samples, .step = 1}));
    if (stage.first_layer > 0) fill(engine, Boundary::kInput, slot, samples);
    ASSERT_TRUE(engine.forward(slot, samples));
    if (stage.last_layer <= options.model.layers)
      fill(engine, Boundary::kOutputGradient, slot, samples);
    if (on_final && &samples == std::end(kMicroBatches) - 1)
      ASSERT_TRUE(engine.backward_last(slot, samples, on_final));
    else
      ASSERT_TRUE(engine.backward(slot, samples));
    slot = (slot + 1) % options.in_flight;
  }
}

std::vector<std::byte> bytes_of(const GradientSpans& spans, const ParameterRange& range) {
  const auto offset = static_cast<size_t>(range.offset), count = static_cast<size_t>(range.count);
  const auto copy = [&](auto of_type) {
    const auto bytes = std::as_bytes(of_type.subspan(offset, count));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  if (!spans.fixed.empty()) return copy(spans.fixed);
  return spans.doubles.empty() ? copy(spans.floats) : copy(spans.doubles);
}
std::vector<std::byte> gradient_bytes(Engine& engine, const ParameterRange& range) {
  return bytes_of(*engine.gradients(std::span(&range, 1)), range);
}

/// A range and what was there when it was reported.
struct Report {
  ParameterRange range;
  std::vector<std::byte> bytes;
};

std::vector<Report> reports_of_step(Engine& engine, const EngineOptions& options) {
  std::vector<Report> reports;
  engine.begin_step();
  run_micro_batches(engine, options, [&](const ParameterRange& range) {
    reports.push_back({range, gradient_bytes(engine, range)});
  });
  return reports;
}

void expect_tiling(const std::vector<Report>& reports, int64_t elements) {
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (const Report& report : reports)
    runs.emplace_back(report.range.offset, report.range.offset + report.range.count);
  std::sort(runs.begin(), runs.end());
  int64_t end = 0;
  for (const auto& run : runs) {
    EXPECT_EQ(run.first, end);
    EXPECT_LT(run.first, run.second);
    end = run.second;
  }
  EXPECT_EQ(end, elements);
}

/// The report that has the first element of a tensor; -1: it is not held.
int report_with(const std::vector<Report>& reports, Engine& engine, const std::string& name) {
  for (const FlatTensor& flat : engine.tensors())
    if (flat.tensor.name == name)
      for (size_t i = 0; i < reports.size(); ++i)
        if (flat.offset >= reports[i].range.offset &&
            flat.offset < reports[i].range.offset + reports[i].range.count)
          return static_cast<int>(i);
  return -1;
}

/// Of one engine: what steps report is final, and all they come to is what it is without reports.
void expect_final(Engine& engine, const EngineOptions& options, int scale_exponent,
                  std::vector<Report>* last) {
  engine.set_loss_scale_exponent(scale_exponent);
  const ParameterRange all{0, engine.held_elements()};
  engine.begin_step();
  run_micro_batches(engine, options, nullptr);
  const LossSums sums = *engine.sums();
  const std::vector<std::byte> expected = gradient_bytes(engine, all);
  for (int step = 1; step <= 2; ++step) {
    *last = reports_of_step(engine, options);
    expect_tiling(*last, engine.held_elements());
    const LossSums again = *engine.sums();
    EXPECT_EQ(again.loss, sums.loss);
    EXPECT_EQ(again.loss_fixed, sums.loss_fixed);
    EXPECT_EQ(again.overflow, sums.overflow);
    EXPECT_EQ(gradient_bytes(engine, all), expected) << "step " << step;
    for (const Report& report : *last)
      EXPECT_EQ(gradient_bytes(engine, report.range), report.bytes) << report.range.offset;
  }
}

struct StepCase {
  std::string name;
  Precision precision = Precision::kFp32;
  Numerics numerics = Numerics::kFast;
  int scale_exponent = 0;
  double dropout = 0;
  bool recompute = false;
  LayerIndex first_layer = 0;
  int layers_left = 0;  ///< to later stages
  int members = 1;
};

class FinalGradientsOnDevice : public ::testing::TestWithParam<StepCase> {
 protected:
  void open(DeviceKind kind) {
    const StepCase& one = GetParam();
    DeviceSpec spec;
    spec.kind = kind;
    spec.threads = 2;
    auto device = open_device(spec, one.precision);
    ASSERT_TRUE(device) << device.error().to_string();
    device_ = std::move(*device);

    options_ = options_for(model_for(kind), {2, 1}, one.numerics);
    options_.model.dropout = one.dropout;
    options_.scale_loss = one.scale_exponent != 0;
    options_.group = &group_;
    options_.in_flight = one.first_layer > 0 || one.layers_left > 0 ? 2 : 1;
    StagePlan stage = whole_model(options_.model);
    stage.first_layer = one.first_layer;
    stage.last_layer -= one.layers_left;
    stage.shares.assign(static_cast<size_t>(one.members), 1.0 / one.members);
    for (int layer = 0; one.recompute && layer < stage.layers(); ++layer)
      stage.recompute.push_back(layer % 3 == 0   ? Recompute::kMlp
                                : layer % 3 == 1 ? Recompute::kBlock
                                                 : Recompute::kAttention);
    options_.stage = stage;
    options_.member = one.members - 1;
  }

  AloneInGroup group_;
  EngineOptions options_;
  std::unique_ptr<Device> device_;
};

TEST_P(FinalGradientsOnDevice, StayAsTheyWereReported) {
  ASSERT_NO_FATAL_FAILURE(open(test_device()));
  const auto engine = engine_on(*device_, options_);
  std::vector<Report> reports;
  expect_final(*engine, options_, GetParam().scale_exponent, &reports);
  EXPECT_EQ(engine->sums()->overflow, GetParam().scale_exponent > 20 ? 1 : 0);
  if (!device_->host_accessible()) {
    EXPECT_EQ(reports.size(), 1U) << "the device is given the pass in one piece";
    return;
  }
  EXPECT_GE(reports.size(), 3U);
  const int last = report_with(reports, *engine, "block.2.mlp.up.weight");
  const int first = report_with(reports, *engine, "block.1.mlp.up.weight");
  EXPECT_LT(last, first) << "backward passes begin with the last layer";
  EXPECT_LE(0, last);
  const int token = report_with(reports, *engine, "embed.token.weight");
  if (GetParam().first_layer == 0) {
    EXPECT_EQ(token, static_cast<int>(reports.size()) - 1) << "of the head, too, if that is here";
  }
}

/// What the first micro-batch comes to; with `before_use` in a first forward pass.
struct ForwardResult {
  double loss = 0;
  std::vector<std::byte> output;

  bool operator==(const ForwardResult&) const = default;
};
ForwardResult forward_of(Engine& engine, const EngineOptions& options,
                         const WeightsNeeded& before_use) {
  const int samples = kMicroBatches[0];
  const StagePlan stage = options.stage.value_or(whole_model(options.model));
  engine.begin_step();
  const auto tokens = random_tokens(options.model, samples, 3);
  EXPECT_TRUE(engine.put_samples(0, {.tokens = tokens, .samples = samples, .step = 1}));
  if (stage.first_layer > 0) fill(engine, Boundary::kInput, 0, samples);
  EXPECT_TRUE(before_use ? engine.forward_first(0, samples, before_use)
                         : engine.forward(0, samples));
  if (stage.last_layer > options.model.layers) return {.loss = engine.sums()->loss, .output = {}};
  const auto output = *engine.pull(0, Boundary::kOutput, samples);
  return {.output = {output.begin(), output.end()}};
}

TEST_P(FinalGradientsOnDevice, WeightsAreAskedForBeforeTheyAreUsed) {
  ASSERT_NO_FATAL_FAILURE(open(test_device()));
  const auto engine = engine_on(*device_, options_);
  const ForwardResult expected = forward_of(*engine, options_, {});
  const std::span<std::byte> weights = *engine->state(Engine::State::kWeight);
  const std::vector<std::byte> kept(weights.begin(), weights.end());
  std::fill(weights.begin(), weights.end(), std::byte{0xFF});  // NaN
  ASSERT_TRUE(engine->state_written(Engine::State::kWeight));
  int asked = 0;
  const auto arrive = [&](const ParameterRange& range) {
    ++asked;
    const auto width = static_cast<size_t>(engine->element_bytes());
    const auto offset = static_cast<size_t>(range.offset) * width;
    std::copy_n(kept.begin() + static_cast<ptrdiff_t>(offset),
                static_cast<size_t>(range.count) * width, weights.subspan(offset).begin());
    return engine->state_written(Engine::State::kWeight);
  };
  EXPECT_EQ(forward_of(*engine, options_, arrive), expected);
  EXPECT_EQ(asked > 1, device_->host_accessible() && !is_reduced(engine->precision()));
}

INSTANTIATE_TEST_SUITE_P(
    Engines, FinalGradientsOnDevice,
    ::testing::Values(
        StepCase{"fp32"}, StepCase{.name = "dropout", .dropout = 0.2},
        StepCase{.name = "recompute", .dropout = 0.2, .recompute = true},
        StepCase{.name = "tf32", .precision = Precision::kTf32},
        StepCase{.name = "bf16", .precision = Precision::kBf16},
        StepCase{.name = "fp16_scaled", .precision = Precision::kFp16, .scale_exponent = 6},
        StepCase{.name = "fp16_overflowing", .precision = Precision::kFp16, .scale_exponent = 40},
        StepCase{.name = "exact", .numerics = Numerics::kExact},
        StepCase{.name = "exact_recompute",
                 .numerics = Numerics::kExact,
                 .dropout = 0.2,
                 .recompute = true},
        StepCase{.name = "exact_fp16_scaled",
                 .precision = Precision::kFp16,
                 .numerics = Numerics::kExact,
                 .scale_exponent = 6},
        StepCase{.name = "first_stage", .layers_left = 2},
        StepCase{.name = "middle_stage", .first_layer = 2, .layers_left = 1},
        StepCase{.name = "last_stage", .dropout = 0.2, .recompute = true, .first_layer = 2},
        StepCase{.name = "last_stage_exact", .numerics = Numerics::kExact, .first_layer = 2},
        StepCase{.name = "tensor_share", .members = 3},
        StepCase{.name = "tensor_share_of_fp16",
                 .precision = Precision::kFp16,
                 .scale_exponent = 6,
                 .layers_left = 1,
                 .members = 3}),
    [](const auto& instance) { return instance.param.name; });

TEST(FinalGradients, StayAsTheyWereReportedInFloat64) {
  const auto device = device_of(DeviceKind::kReference);
  const EngineOptions options = options_for(model_for(DeviceKind::kCpu, 1), {2, 1});
  const auto engine = engine_on(*device, options);
  std::vector<Report> reports;
  expect_final(*engine, options, 0, &reports);
  EXPECT_GT(reports.size(), 2U);
}

/// What a step counts on a device that computes on its own: nothing is waited for, and the graph of
/// the pass stays whole.
TEST(FinalGradients, OfADeviceOfItsOwnAreAllEnqueued) {
  ForeignDevice device;
  const EngineOptions options = options_for(model_for(DeviceKind::kCuda), {2, 1});
  const auto engine = engine_on(device, options);
  std::vector<Report> reports;
  expect_final(*engine, options, 0, &reports);
  EXPECT_EQ(reports.size(), 1U);

  engine->begin_step();
  const auto tokens = random_tokens(options.model, 2, 4);
  ASSERT_TRUE(engine->put_samples(0, {.tokens = tokens, .samples = 2}));
  ASSERT_TRUE(engine->forward(0, 2));
  const int64_t waits = device.waits();
  const std::string before = device.ranges();
  std::vector<int64_t> counts;
  ASSERT_TRUE(engine->backward_last(
      0, 2, [&](const ParameterRange& range) { counts.push_back(range.count); }));
  EXPECT_THAT(counts, ElementsAre(engine->held_elements()));
  EXPECT_EQ(device.waits(), waits);
  EXPECT_EQ(device.ranges().substr(before.size()), "(backward(head)(block 1)(block 0)(embedding))");
}

/// As a progress thread would: it changes what it is told of while the pass goes on.
TEST(FinalGradients, AnotherThreadMayHaveThem) {
  for (const Numerics numerics : {Numerics::kFast, Numerics::kExact}) {
    const auto device = device_of(DeviceKind::kCpu, 2);
    const EngineOptions options = options_for(model_for(DeviceKind::kCpu, 2), {2, 1}, numerics);
    const auto engine = engine_on(*device, options);
    const ParameterRange all{0, engine->held_elements()};
    engine->begin_step();
    run_micro_batches(*engine, options, nullptr);
    const std::vector<double> plain = gradient_of(*engine);

    engine->begin_step();
    const GradientSpans spans = *engine->gradients();
    std::mutex mutex;
    std::condition_variable told;
    std::deque<ParameterRange> waiting;
    std::thread doubling([&] {
      for (int64_t left = all.count; left > 0;) {
        std::unique_lock lock(mutex);
        told.wait(lock, [&] { return !waiting.empty(); });
        const ParameterRange range = waiting.front();
        waiting.pop_front();
        lock.unlock();
        for (int64_t i = range.offset; i < range.offset + range.count; ++i) {
          if (!spans.floats.empty()) spans.floats[static_cast<size_t>(i)] *= 2;
          if (!spans.fixed.empty()) spans.fixed[static_cast<size_t>(i)] *= 2;
        }
        left -= range.count;
      }
    });
    run_micro_batches(*engine, options, [&](const ParameterRange& range) {
      const std::lock_guard lock(mutex);
      waiting.push_back(range);
      told.notify_one();
    });
    doubling.join();
    std::vector<double> doubled = gradient_of(*engine);
    for (double& value : doubled) value /= 2;
    EXPECT_EQ(doubled, plain);
  }
}

/// Cuts for reports are no reason to lose work between the sums of ranks that share a stage.
TEST(FinalGradients, WorkBetweenGroupSumsIsCountedWhole) {
  const auto device = device_of(DeviceKind::kCpu);
  AloneInGroup group;
  EngineOptions options = options_for(model_for(DeviceKind::kCpu), {2, 1});
  options.stage = whole_model(options.model);
  options.stage->shares = {0.5, 0.5};
  options.group = &group;
  const auto engine = engine_on(*device, options);
  const StageSpec stage = stage_spec(options, traits_of(*device));
  const ParameterLayout parameters(holdings_of(options.model, *options.stage, 0));
  std::vector<double> expected;
  for (const int samples : kMicroBatches) {
    const Program program = compile_training(stage, parameters, ExchangeLayout(stage, 2), samples);
    double flops = 0;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      if (i == program.backward) flops = 0;
      flops += program.instructions[i].flops;
      if (std::holds_alternative<OpCall>(program.instructions[i].work)) continue;
      expected.push_back(std::exchange(flops, 0));
    }
  }
  engine->begin_step();
  run_micro_batches(*engine, options, [](const ParameterRange&) {});
  EXPECT_EQ(group.works(), expected);
}

TEST(FinalGradients, AStepThatTellsThemAllocatesNothing) {
  const auto device = device_of(DeviceKind::kCpu, 2);
  const EngineOptions options = options_for(tiny_model(), {2, 1});
  const auto engine = engine_on(*device, options);
  const int64_t before = device->allocation_count();
  int64_t elements = 0;
  engine->begin_step();
  run_micro_batches(*engine, options,
                    [&](const ParameterRange& range) { elements += range.count; });
  EXPECT_EQ(elements, engine->held_elements());
  EXPECT_EQ(device->allocation_count(), before);
}

TEST(FinalGradientsDeath, NoBackwardPassFollows) {
  const auto device = device_of(DeviceKind::kCpu);
  const EngineOptions options = options_for(tiny_model(), {2, 1});
  const auto engine = engine_on(*device, options);
  engine->begin_step();
  run_micro_batches(*engine, options, [](const ParameterRange&) {});
  EXPECT_DEATH((void)engine->backward(0, 1), "a backward pass after the last of its step");
}

}  // namespace
}  // namespace motley::testing
