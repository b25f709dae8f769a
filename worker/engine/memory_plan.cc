#include "worker/engine/memory_plan.h"

#include <algorithm>

#include "worker/engine/engine.h"

namespace motley {

MemoryPlan::MemoryPlan(const StageSpec& stage, const ParameterLayout& layout,
                       const ExchangeLayout& exchange_layout, const Updater::Memory& update)
    : parameters(layout.elements() * stage.element_bytes),
      gradients(layout.elements() * (stage.numerics == Numerics::kExact
                                         ? static_cast<int64_t>(sizeof(int64_t))
                                         : stage.element_bytes)),
      optimizer(update.state + update.squares),
      exchange(exchange_layout.size(stage.in_flight)),
      arena(update.scratch),
      slots(stage.in_flight) {}

void MemoryPlan::require(const Program& program) {
  kept = std::max(kept, program.kept);
  arena = std::max(arena, program.arena);
}

MemoryPoint MemoryPlan::point(int micro_batch) const {
  MemoryPoint point;
  point.micro_batch = micro_batch;
  point.fixed = parameters + gradients + optimizer + exchange;
  point.activations = kept * slots + arena;
  return point;
}

StageSpec stage_spec(const EngineOptions& options, int element_bytes, int threads,
                     const int* exact_exponent) {
  return {.model = options.model,
          .numerics = options.numerics,
          .layers = options.stage.value_or(whole_model(options.model)),
          .member = options.member,
          .in_flight = options.in_flight,
          .element_bytes = element_bytes,
          .threads = threads,
          .exact_exponent = exact_exponent,
          .seed = options.seed};
}

std::vector<MemoryPoint> estimate_memory(const EngineOptions& options, DeviceKind kind, int threads,
                                         int largest) {
  const int element_bytes = kind == DeviceKind::kReference ? 8 : 4;
  const StageSpec stage = stage_spec(options, element_bytes, threads, nullptr);
  const ParameterLayout parameters(holdings_of(stage.model, stage.layers, stage.member));
  const Updater::Memory update =
      Updater::memory(options, UpdateLayout(options, parameters), element_bytes);
  std::vector<MemoryPoint> points;
  for (int samples = 1; samples <= largest; ++samples) {
    const ExchangeLayout exchange(stage, samples);
    MemoryPlan plan(stage, parameters, exchange, update);
    Address output;
    plan.require(compile_training(stage, parameters, exchange, samples));
    plan.require(compile_forward(stage, parameters, exchange, samples, &output));
    points.push_back(plan.point(samples));
  }
  return points;
}

}  // namespace motley
