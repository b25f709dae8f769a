#include "worker/engine/engine.h"

#include <algorithm>

#include "worker/engine/stage_engine.h"

namespace motley {

Result<std::unique_ptr<Engine>> Engine::create(Device& device, const EngineOptions& options) {
  MOTLEY_TRY_VOID(validate(options.model));
  MOTLEY_CHECK(!options.micro_batches.empty(), "an engine without a micro-batch");
  MOTLEY_CHECK(options.owned || !options.shard_optimizer, "sharded state without owners");
  for (int samples : options.micro_batches) MOTLEY_CHECK_LT(0, samples);
  auto engine = std::make_unique<StageEngine>(device, options);
  MOTLEY_TRY_VOID(engine->set_up());
  return engine;
}

Result<Unit> run_micro_batch(Engine& engine, std::span<const int32_t> tokens, int samples) {
  MOTLEY_TRY_VOID(engine.put_samples(0, {.tokens = tokens, .samples = samples}));
  MOTLEY_TRY_VOID(engine.forward(0, samples));
  return engine.backward(0, samples);
}

Result<Unit> evaluate_all(Engine& engine, std::span<const int32_t> tokens, int samples) {
  const int largest = engine.memory().micro_batch;
  const size_t length = tokens.size() / static_cast<size_t>(samples);
  for (int first = 0; first < samples; first += largest) {
    const int count = std::min(largest, samples - first);
    const auto piece =
        tokens.subspan(static_cast<size_t>(first) * length, static_cast<size_t>(count) * length);
    MOTLEY_TRY_VOID(engine.put_samples(0, {.tokens = piece, .samples = count}));
    MOTLEY_TRY_VOID(engine.evaluate(count));
  }
  return Unit{};
}

}  // namespace motley
