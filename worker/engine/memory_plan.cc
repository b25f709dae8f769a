#include "worker/engine/memory_plan.h"

#include <algorithm>

#include "worker/engine/engine.h"

namespace motley {

MemoryPlan::MemoryPlan(const StageSpec& stage, const ParameterLayout& layout,
                       const ExchangeLayout& exchange_layout)
    : parameters(layout.elements() * stage.element_bytes),
      gradients(layout.elements() * (stage.numerics == Numerics::kExact
                                         ? static_cast<int64_t>(sizeof(int64_t))
                                         : stage.element_bytes)),
      exchange(exchange_layout.size) {
  if (stage.numerics == Numerics::kExact)
    require_arena(Bytes(std::min(kUpdateChunk, layout.elements()) * stage.element_bytes));
}

void MemoryPlan::require_arena(Bytes bytes) { arena = std::max(arena, bytes); }

MemoryPoint MemoryPlan::point(int micro_batch) const {
  MemoryPoint point;
  point.micro_batch = micro_batch;
  point.fixed = parameters * 3 + gradients + exchange;
  point.activations = arena;
  return point;
}

std::vector<MemoryPoint> estimate_memory(const EngineOptions& options, DeviceKind kind, int threads,
                                         int largest) {
  StageSpec stage;
  stage.model = options.model;
  stage.numerics = options.numerics;
  stage.element_bytes = kind == DeviceKind::kReference ? 8 : 4;
  stage.threads = threads;
  const ParameterLayout parameters(options.model);
  std::vector<MemoryPoint> points;
  for (int samples = 1; samples <= largest; ++samples) {
    const ExchangeLayout exchange(stage, samples);
    MemoryPlan plan(stage, parameters, exchange);
    Address logits;
    plan.require_arena(compile_training(stage, parameters, exchange, samples).arena);
    plan.require_arena(compile_forward(stage, parameters, exchange, samples, &logits).arena);
    points.push_back(plan.point(samples));
  }
  return points;
}

}  // namespace motley
