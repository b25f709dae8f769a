#include "worker/engine/memory_plan.h"

#include <algorithm>

#include "core/rank_memory.h"
#include "worker/engine/engine.h"

namespace motley {

namespace {

/// What an instruction sums over the ranks that share the stage.
int64_t summed_elements(const Instruction& instruction, int members) {
  if (const auto* sum = std::get_if<GroupSum>(&instruction.work)) return sum->count;
  if (const auto* gather = std::get_if<GroupGather>(&instruction.work))
    return members * gather->count;
  return 0;
}

}  // namespace

MemoryPlan::MemoryPlan(const StageSpec& stage, const ParameterLayout& layout,
                       const ExchangeLayout& exchange_layout, const Updater::Memory& update,
                       bool host_reaches_device)
    : parameters(layout.elements() * stage.element_bytes),
      gradients(layout.elements() * gradient_element_bytes(stage.numerics, stage.element_bytes)),
      optimizer(update.state + update.squares),
      exchange(exchange_layout.size(stage.in_flight)),
      host_state(update.host_state),
      arena(update.scratch),
      slots(stage.in_flight),
      slot(exchange_layout.slot_size),
      one_memory(host_reaches_device),
      element_bytes(stage.element_bytes),
      members(stage.shape().members) {}

void MemoryPlan::require(const Program& program) {
  kept = std::max(kept, program.kept);
  arena = std::max(arena, program.arena);
  for (const Instruction& instruction : program.instructions)
    staging = std::max(staging, Bytes(summed_elements(instruction, members) * element_bytes));
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
  const Bytes shared = parameters + gradients + optimizer + exchange;
  return {.fixed = shared - in_slots,
          .saved = kept * slots + in_slots,
          .transient = arena,
          .host = one_memory ? host_state : host_state + shared + staging,
          .one_memory = one_memory};
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
  const int element_bytes = element_bytes_of(kind);
  const StageSpec stage = stage_spec(options, element_bytes, threads, nullptr);
  const ParameterLayout parameters(holdings_of(stage.model, stage.layers, stage.member));
  const int largest = *std::max_element(options.micro_batches.begin(), options.micro_batches.end());
  const ExchangeLayout exchange(stage, largest);
  MemoryPlan plan(stage, parameters, exchange,
                  Updater::memory(options, UpdateLayout(options, parameters), element_bytes),
                  kind != DeviceKind::kCuda);
  for (const int samples : options.micro_batches)
    plan.require(compile_training(stage, parameters, exchange, samples));
  Address output;
  plan.require(compile_forward(stage, parameters, exchange, largest, &output));
  return plan;
}

}  // namespace

int element_bytes_of(DeviceKind kind) { return kind == DeviceKind::kReference ? 8 : 4; }

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
