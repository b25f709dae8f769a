// Writes what the engine computes, for the PyTorch oracle to compute again:
//
//   motley_engine_export whole|cut LAYERS HEADS WIDTH CONTEXT VOCAB SAMPLES fp32|bf16 FOLDER

#include <cstdlib>
#include <iostream>

#include "core/philox.h"
#include "core/spec/names.h"
#include "tests/oracle/oracle_case.h"
#include "tests/support/test_device.h"
#include "worker/engine/engine.h"
#include "worker/optimizer/schedule.h"

namespace motley::testing {
namespace {

std::vector<int32_t> random_tokens(const OracleCase& test) {
  std::vector<int32_t> tokens(
      static_cast<size_t>(OracleCase::kSteps * test.samples * (test.model.context + 1)));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>(random_u32(20, RandomUse::kSampling, 0, i) %
                                     static_cast<uint32_t>(test.model.vocab));
  return tokens;
}

/// One step's forward and backward, in two micro-batches where there are samples enough. Returns
/// the mean loss.
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

void set_weights(Engine& engine, std::span<float> weights) {
  for (const FlatTensor& flat : engine.tensors())
    for (int64_t i = flat.offset; i < flat.offset + flat.elements(); ++i)
      weights[static_cast<size_t>(i)] = oracle_weight(flat.tensor, i);
}

}  // namespace

Result<OracleResult> compute_whole(const OracleCase& test) {
  DeviceSpec spec;
  spec.kind = test_device();
  spec.threads = 2;
  MOTLEY_TRY(const auto device, open_device(spec, test.precision));
  EngineOptions options;
  options.model = test.model;
  options.micro_batches = {(test.samples + 1) / 2, std::max(1, test.samples / 2)};
  options.optimizer = test.optimizer;
  MOTLEY_TRY(const auto engine, Engine::create(*device, options));
  MOTLEY_TRY(const std::span<std::byte> state, engine->state(Engine::State::kWeight));
  const std::span<float> weights{reinterpret_cast<float*>(state.data()), state.size() / 4};
  set_weights(*engine, weights);
  MOTLEY_TRY_VOID(engine->state_written(Engine::State::kWeight));

  OracleResult result;
  result.weights.assign(weights.begin(), weights.end());
  result.tokens = random_tokens(test);
  const size_t length = result.tokens.size() / OracleCase::kSteps;
  for (int step = 1; step <= OracleCase::kSteps; ++step) {
    const auto batch =
        std::span(result.tokens).subspan(static_cast<size_t>(step - 1) * length, length);
    MOTLEY_TRY(const double loss, compute(*engine, batch, test.samples));
    result.losses.push_back(loss);
    const int64_t count = engine->sums()->tokens;
    MOTLEY_TRY(const GradientSpans spans, engine->gradients());
    if (step == 1)
      for (const float sum : spans.floats)
        result.gradients.push_back(sum / static_cast<float>(count));
    MOTLEY_TRY(const double norm, engine->gradient_norm(count, *solo_communicator()));
    const double lr = learning_rate(test.optimizer, test.schedule, step, OracleCase::kSteps);
    MOTLEY_TRY_VOID(engine->update(step, lr, count, clip_factor(test.optimizer.clip, norm)));
  }
  return result;
}

}  // namespace motley::testing

int main(int argc, char** argv) {
  using namespace motley::testing;
  const std::string how = argc == 10 ? argv[1] : "";
  const auto precision =
      argc == 10 ? motley::from_spec_name<motley::Precision>(argv[8]) : std::nullopt;
  if ((how != "whole" && how != "cut") || !precision) {
    std::cerr << "usage: motley_engine_export whole|cut LAYERS HEADS WIDTH CONTEXT VOCAB SAMPLES "
                 "fp32|bf16 FOLDER\n";
    return 2;
  }
  OracleCase test;
  test.model.layers = std::atoi(argv[2]);
  test.model.heads = std::atoi(argv[3]);
  test.model.width = std::atoi(argv[4]);
  test.model.context = std::atoi(argv[5]);
  test.model.vocab = std::atoi(argv[6]);
  test.samples = std::atoi(argv[7]);
  test.precision = *precision;
  const auto result = how == "whole" ? compute_whole(test) : compute_cut(test);
  if (result) {
    write_case(test, *result, argv[9]);
    return 0;
  }
  std::cerr << "motley_engine_export: " << result.error().to_string() << "\n";
  return motley::exit_code(result.error().code);
}
