// The trainer's own parts under a 2 x 2 cut: pipeline, shared layers, slice exchange.

#include <mutex>

#include "tests/e2e/small_run.h"
#include "tests/oracle/oracle_case.h"
#include "worker/train/stepper.h"

namespace motley::testing {
namespace {

/// Single samples as grains, two to a micro-batch: the last one may be smaller.
SmallRun run_of(const OracleCase& test) {
  SmallRun run;
  run.grain = 1;
  run.precision = test.precision;
  run.model = test.model;
  run.steps = OracleCase::kSteps;
  const int front = (layer_count(test.model) + 1) / 2;
  run.replicas = {{.stages = {{.layers = front, .shares = {0.6, 0.4}},
                              {.layers = layer_count(test.model) - front, .shares = {0.3, 0.7}}},
                   .grains = test.samples,
                   .micro_batch_grains = 2}};
  return run;
}

/// Where the model's tensors lie when one rank holds all; filled by all ranks.
class WholeBuffers {
 public:
  explicit WholeBuffers(const ModelSpec& model) : layout_(model) {
    result_.weights.resize(static_cast<size_t>(layout_.elements()));
    result_.gradients.resize(result_.weights.size());
  }

  /// body(element here, element of the whole) for every element this rank holds.
  template <class Body>
  void each(const Engine& engine, Body body) const {
    for (const FlatTensor& flat : engine.tensors(Engine::State::kWeight)) {
      const FlatTensor& all = *layout_.find(flat.tensor.name);
      for (const CopyRun& run : copy_runs(flat.slice, all.slice))
        for (int64_t i = 0; i < run.count; ++i)
          body(flat.tensor, flat.offset + run.from_offset + i, all.offset + run.to_offset + i);
    }
  }

  std::mutex mutex;
  OracleResult& result() { return result_; }

 private:
  ParameterLayout layout_;
  OracleResult result_;
};

Result<Unit> start_from_oracle_weights(Engine& engine, WholeBuffers& whole) {
  MOTLEY_TRY(const std::span<std::byte> state, engine.state(Engine::State::kWeight));
  auto* const weights = reinterpret_cast<float*>(state.data());
  const std::lock_guard lock(whole.mutex);
  whole.each(engine, [&](const LogicalTensor& tensor, int64_t here, int64_t there) {
    weights[here] = oracle_weight(tensor, there);
    whole.result().weights[static_cast<size_t>(there)] = weights[here];
  });
  return engine.state_written(Engine::State::kWeight);
}

/// The gradient of the first step's mean loss, before anything is updated.
Result<Unit> first_gradient(const Attempt& attempt, RankParts& parts, Communicator& world,
                            WholeBuffers& whole) {
  Pipeline pipeline(attempt, parts, world, [] {});
  MOTLEY_TRY_VOID(pipeline.train(1));
  MOTLEY_TRY(const GradientSpans spans, parts.engine->gradients());
  MOTLEY_TRY_VOID(parts.slices->sum(spans));
  const double tokens = attempt.plan.global_batch * attempt.job.model.context;
  const std::lock_guard lock(whole.mutex);
  whole.each(*parts.engine, [&](const LogicalTensor&, int64_t here, int64_t there) {
    whole.result().gradients[static_cast<size_t>(there)] =
        static_cast<float>(spans.floats[static_cast<size_t>(here)] / tokens);
  });
  return Unit{};
}

Result<Unit> train_rank(const Attempt& attempt, Communicator& world, WholeBuffers& whole) {
  MOTLEY_TRY(const auto parts, build_rank(attempt, world));
  MOTLEY_TRY_VOID(start_from_oracle_weights(*parts->engine, whole));
  MOTLEY_TRY_VOID(first_gradient(attempt, *parts, world, whole));
  Stepper stepper(attempt, *parts, world, [] {});
  for (int step = 1; step <= OracleCase::kSteps; ++step) {
    MOTLEY_TRY(const StepResult result, stepper.run(step, {}));
    if (world.rank() == 0) whole.result().losses.push_back(result.loss);
  }
  if (world.rank() != 0) return Unit{};
  const int samples = OracleCase::kSteps * attempt.plan.global_batch;
  std::vector<int32_t>& tokens = whole.result().tokens;
  tokens.resize(static_cast<size_t>(samples * (attempt.job.model.context + 1)));
  parts->corpus.train_samples(attempt.job.train.seed, 0, samples, tokens);
  return Unit{};
}

}  // namespace

Result<OracleResult> compute_cut(const OracleCase& test) {
  const TemporaryDirectory scratch;
  Attempt attempt = small_attempt(run_of(test), scratch.path());
  attempt.job.train.optimizer = test.optimizer;
  attempt.job.train.schedule = test.schedule;
  WholeBuffers whole(test.model);
  MOTLEY_TRY_VOID(run_inproc(attempt.plan.world_size(), [&](Communicator& world) {
    return train_rank(attempt, world, whole);
  }));
  return whole.result();
}

}  // namespace motley::testing
