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

MemoryPlan::MemoryPlan(const EngineOptions& options, const StageSpec& stage,
                       const ParameterLayout& layout, const ExchangeLayout& exchange_layout,
                       const Updater::Memory& update, bool host_reaches_device)
    : parameters(layout.elements() * stage.element_bytes()),
      gradients(layout.elements() * gradient_element_bytes(stage.numerics, stage.element_bytes())),
      optimizer(update.state + update.squares + update.tables),
      squares(update.squares),
      exchange(exchange_layout.size(stage.in_flight)),
      host_state(update.host_state),
      managed(update.managed && !host_reaches_device ? parameters + update.state : Bytes(0)),
      arena(update.scratch),
      slots(stage.in_flight),
      slot(exchange_layout.slot_size),
      one_memory(host_reaches_device),
      precision(stage.precision),
      rounded(rounded_elements(stage, layout) * reduced_bytes(stage.precision)),
      widens(is_reduced(stage.precision) && host_reaches_device),
      staged_bytes((host_reaches_device ? 0 : reduced_bytes(stage.precision)) +
                   (is_reduced(stage.precision) ? full_bytes(stage.precision) : 0)),
      members(stage.shape().members) {
  const RoundArgs weights{.in = Address::symbol(0),
                          .out = Address::symbol(1),
                          .count = std::min(layout.elements(), kUpdateChunk)};
  if (widens) scratch = scratch_bytes(weights, stage.precision);
  views = exchange + squares;
  if (options.exchanges_gradients) views += gradients;
  if (options.exchanges_weights && !update.managed) views += parameters;
}

void MemoryPlan::require(const Program& program) {
  for (const Instruction& instruction : program.instructions)
    if (const auto* call = std::get_if<OpCall>(&instruction.work); one_memory && call != nullptr)
      scratch = std::max(scratch, scratch_bytes(*call, precision));
  kept = std::max(kept, program.kept);
  arena = std::max(arena, program.arena);
  for (const Instruction& instruction : program.instructions)
    staging = std::max(staging, Bytes(summed_elements(instruction, members) * staged_bytes));
}

MemoryPoint MemoryPlan::point(int micro_batch) const {
  MemoryPoint point;
  point.micro_batch = micro_batch;
  point.fixed = parameters + rounded + gradients + optimizer + exchange - managed;
  point.activations = kept * slots + arena + scratch;
  return point;
}

MemoryEstimate MemoryPlan::estimate() const {
  const Bytes in_slots = slot * slots;
  const Bytes shared = parameters + gradients + optimizer + exchange;
  return {.fixed = shared + rounded - in_slots - managed,
          .parameters = parameters + rounded,
          .gradients = gradients,
          .optimizer = optimizer,
          .saved = kept * slots + in_slots,
          .transient = arena + scratch,
          .host = host_state + staging + managed + (one_memory ? Bytes(0) : views),
          .one_memory = one_memory};
}

StageSpec stage_spec(const EngineOptions& options, const DeviceTraits& device) {
  return {.model = options.model,
          .numerics = options.numerics,
          .layers = options.stage.value_or(whole_model(options.model)),
          .member = options.member,
          .in_flight = options.in_flight,
          .precision = device.precision,
          .kind = device.kind,
          .threads = device.threads,
          .scale_loss = options.scale_loss,
          .seed = options.seed};
}

namespace {

/// As StageEngine sets itself up.
MemoryPlan plan_memory(const EngineOptions& options, const DeviceTraits& device) {
  const StageSpec stage = stage_spec(options, device);
  const ParameterLayout parameters(holdings_of(stage.model, stage.layers, stage.member));
  const int largest = *std::max_element(options.micro_batches.begin(), options.micro_batches.end());
  const ExchangeLayout exchange(stage, largest);
  MemoryPlan plan(
      options, stage, parameters, exchange,
      Updater::memory(options, UpdateLayout(options, parameters), stage.element_bytes()),
      device.kind != DeviceKind::kCuda);
  for (const int samples : options.micro_batches)
    plan.require(compile_training(stage, parameters, exchange, samples));
  Address output;
  plan.require(compile_forward(stage, parameters, exchange, largest, &output));
  return plan;
}

}  // namespace

DeviceTraits traits_of(const Device& device) {
  return {device.kind(), device.precision(), device.threads()};
}

MemoryEstimate estimate_engine(const EngineOptions& options, const DeviceTraits& device) {
  return plan_memory(options, device).estimate();
}

std::vector<MemoryPoint> estimate_memory(EngineOptions options, const DeviceTraits& device,
                                         int largest) {
  std::vector<MemoryPoint> points;
  for (int samples = 1; samples <= largest; ++samples) {
    options.micro_batches = {samples};
    points.push_back(plan_memory(options, device).point(samples));
  }
  return points;
}

}  // namespace motley
