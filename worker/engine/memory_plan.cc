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
      slots(stage.in_flight),
      slot(exchange_layout.slot_size) {}

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

MemoryEstimate MemoryPlan::estimate() const {
  const Bytes in_slots = slot * slots;
  return {.fixed = parameters + gradients + optimizer + (exchange - in_slots),
          .saved = kept * slots + in_slots,
          .transient = arena};
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

namespace {

/// As StageEngine sets itself up.
MemoryPlan plan_memory(const EngineOptions& options, DeviceKind kind, int threads) {
  const int element_bytes = kind == DeviceKind::kReference ? 8 : 4;
  const StageSpec stage = stage_spec(options, element_bytes, threads, nullptr);
  const ParameterLayout parameters(holdings_of(stage.model, stage.layers, stage.member));
  const int largest = *std::max_element(options.micro_batches.begin(), options.micro_batches.end());
  const ExchangeLayout exchange(stage, largest);
  MemoryPlan plan(stage, parameters, exchange,
                  Updater::memory(options, UpdateLayout(options, parameters), element_bytes));
  for (const int samples : options.micro_batches)
    plan.require(compile_training(stage, parameters, exchange, samples));
  Address output;
  plan.require(compile_forward(stage, parameters, exchange, largest, &output));
  return plan;
}

}  // namespace

MemoryEstimate estimate_engine(const EngineOptions& options, DeviceKind kind, int threads) {
  return plan_memory(options, kind, threads).estimate();
}

std::vector<MemoryPoint> estimate_memory(EngineOptions options, DeviceKind kind, int threads,
                                         int largest) {
  std::vector<MemoryPoint> points;
  for (int samples = 1; samples <= largest; ++samples) {
    options.micro_batches = {samples};
    points.push_back(plan_memory(options, kind, threads).point(samples));
  }
  return points;
}

}  // namespace motley
