#include "worker/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "core/hash.h"
#include "core/units.h"
#include "worker/engine/exact.h"
#include "worker/engine/exchange.h"
#include "worker/engine/memory_plan.h"
#include "worker/engine/shared_memory.h"
#include "worker/engine/stage.h"

namespace motley {

namespace {

/// A program ready to run.
struct BoundProgram {
  std::vector<Instruction> instructions;
  double flops = 0;
};

/// An engine that holds the whole model.
class WholeModelEngine final : public Engine {
 public:
  WholeModelEngine(Device& device, const EngineOptions& options)
      : device_(device),
        options_(options),
        stage_{options.model, options.numerics, device.element_bytes(), device.threads(),
               &exponent_},
        largest_(*std::max_element(options.micro_batches.begin(), options.micro_batches.end())),
        parameters_(options.model),
        exchange_layout_(stage_, largest_),
        plan_(stage_, parameters_, exchange_layout_) {}

  Result<Unit> set_up(uint64_t seed);

  void begin_step() override;
  Result<Unit> run_micro_batch(std::span<const int32_t> tokens, int samples) override;
  Result<Unit> evaluate(std::span<const int32_t> tokens, int samples) override;
  Result<std::vector<float>> logits(std::span<const int32_t> inputs, int samples) override;
  LossSums sums() const override { return sums_; }

  Result<GradientSpans> gradients() override;
  Result<double> gradient_norm(int64_t tokens) override;
  Result<Unit> update(int64_t step, double lr, int64_t tokens, double clip_factor) override;

  int exact_exponent() const override { return exponent_; }
  void set_exact_exponent(int exponent) override { exponent_ = exponent; }
  int next_exact_exponent(bool overflowed) const override {
    return overflowed ? lowered_exponent(exponent_) : next_exponent(exponent_, largest_gradient_);
  }

  const std::vector<FlatTensor>& tensors() const override { return parameters_.tensors(); }
  Result<std::span<std::byte>> state(State which) override { return memory_of(which).pull(); }
  Result<Unit> state_written(State which) override { return memory_of(which).push(); }
  int element_bytes() const override { return stage_.element_bytes; }
  double flops(int samples) const override { return training_.at(samples).flops; }
  MemoryPoint memory() const override { return plan_.point(largest_); }
  Result<std::string> weights_hash() override;

 private:
  Result<Unit> allocate();
  Result<Unit> initialise(uint64_t seed);
  bool exact() const { return options_.numerics == Numerics::kExact; }

  void run(const BoundProgram& program);

  Result<Unit> push_gradients();
  Result<double> fast_norm();
  Result<double> exact_norm();
  /// AdamW on elements [first, first + count) of the flat buffers.
  void update_range(AdamwArgs args, int64_t first, int64_t count);
  SharedMemory& memory_of(State which);

  Device& device_;
  EngineOptions options_;
  int exponent_ = kFirstExactExponent;  // the programs hold its address
  StageSpec stage_;
  int largest_;  // micro-batch
  ParameterLayout parameters_;
  ExchangeLayout exchange_layout_;
  MemoryPlan plan_;

  SharedMemory weights_, gradients_, adam_m_, adam_v_;
  std::optional<Exchange> exchange_;
  DeviceBuffer arena_;
  std::map<int, BoundProgram> training_;  // by micro-batch
  BoundProgram forward_;                  // of the largest
  Bytes logits_{0};                       // their place in the arena after forward_

  LossSums sums_;
  bool gradients_exposed_ = false;  // the host may have changed its view
  uint64_t largest_gradient_ = 0;   // exact: of the last gradient_norm()
};

// --- set-up

Result<Unit> WholeModelEngine::set_up(uint64_t seed) {
  std::map<int, Program> programs;
  for (int samples : options_.micro_batches) {
    programs[samples] = compile_training(stage_, parameters_, exchange_layout_, samples);
    plan_.require_arena(programs[samples].arena);
  }
  Address logits;
  const Program forward = compile_forward(stage_, parameters_, exchange_layout_, largest_, &logits);
  plan_.require_arena(forward.arena);
  logits_ = forward.symbols[logits.symbol_id()].offset;

  MOTLEY_TRY_VOID(allocate());
  const SegmentBases bases{weights_.device(), gradients_.device(), exchange_->device(),
                           static_cast<std::byte*>(arena_.data())};
  for (const auto& [samples, program] : programs)
    training_[samples] = {bind(program, bases), program.flops()};
  forward_ = {bind(forward, bases), forward.flops()};
  return initialise(seed);
}

Result<Unit> WholeModelEngine::allocate() {
  const Bytes total = plan_.point(largest_).total();
  if (total > options_.memory_limit)
    return fail(ErrorCode::kDeviceLost, "micro-batch " + std::to_string(largest_) + " needs " +
                                            format_bytes(total) + " on " + device_.name() +
                                            ", more than its limit of " +
                                            format_bytes(options_.memory_limit));
  MOTLEY_TRY(weights_, SharedMemory::allocate(device_, plan_.parameters));
  MOTLEY_TRY(gradients_, SharedMemory::allocate(device_, plan_.gradients));
  MOTLEY_TRY(adam_m_, SharedMemory::allocate(device_, plan_.parameters));
  MOTLEY_TRY(adam_v_, SharedMemory::allocate(device_, plan_.parameters));
  MOTLEY_TRY(exchange_, Exchange::allocate(device_, stage_, exchange_layout_));
  MOTLEY_TRY(arena_, device_.allocate(plan_.arena));
  return Unit{};
}

Result<Unit> WholeModelEngine::initialise(uint64_t seed) {
  Elements weights(weights_.host(), stage_.element_bytes);
  int number = 0;
  for (const FlatTensor& flat : tensors()) {
    const auto set_row = [&, tensor_number = number++](int64_t row) {
      const int64_t length = flat.elements() / flat.tensor.shape[0];
      for (int64_t i = row * length; i < (row + 1) * length; ++i)
        weights.set(flat.offset + i,
                    initial_value(options_.model, flat.tensor, tensor_number, i, seed));
    };
    host_for(device_, flat.tensor.shape[0], set_row);
  }
  MOTLEY_TRY_VOID(weights_.push());
  execute(device_, ZeroArgs{.out = Address::of(adam_m_.device()), .bytes = adam_m_.size().value()});
  execute(device_, ZeroArgs{.out = Address::of(adam_v_.device()), .bytes = adam_v_.size().value()});
  begin_step();
  return device_.synchronize();
}

// --- running

void WholeModelEngine::begin_step() {
  execute(device_,
          ZeroArgs{.out = Address::of(gradients_.device()), .bytes = gradients_.size().value()});
  exchange_->clear(device_);
  sums_ = {};
  gradients_exposed_ = false;
}

Result<Unit> WholeModelEngine::run_micro_batch(std::span<const int32_t> tokens, int samples) {
  const auto program = training_.find(samples);
  MOTLEY_CHECK(program != training_.end(), "no program for this micro-batch");
  MOTLEY_TRY_VOID(exchange_->put_samples(tokens, samples));
  run(program->second);
  return exchange_->add_losses(samples, &sums_);
}

Result<Unit> WholeModelEngine::evaluate(std::span<const int32_t> tokens, int samples) {
  const auto length = static_cast<size_t>(options_.model.context) + 1;
  for (int first = 0; first < samples; first += largest_) {
    const int count = std::min(largest_, samples - first);
    MOTLEY_TRY_VOID(exchange_->put_samples(
        tokens.subspan(static_cast<size_t>(first) * length, static_cast<size_t>(count) * length),
        count));
    run(forward_);
    MOTLEY_TRY_VOID(exchange_->add_losses(count, &sums_));
  }
  return Unit{};
}

Result<std::vector<float>> WholeModelEngine::logits(std::span<const int32_t> inputs, int samples) {
  MOTLEY_CHECK_LE(samples, largest_);
  // As samples whose last target is of no interest.
  const auto context = static_cast<size_t>(options_.model.context);
  std::vector<int32_t> tokens;
  for (size_t first = 0; first < inputs.size(); first += context) {
    const auto sample = inputs.subspan(first, context);
    tokens.insert(tokens.end(), sample.begin(), sample.end());
    tokens.push_back(0);
  }
  MOTLEY_TRY_VOID(exchange_->put_samples(tokens, samples));
  run(forward_);
  const size_t count = inputs.size() * static_cast<size_t>(options_.model.vocab);
  std::vector<std::byte> copy(count * static_cast<size_t>(stage_.element_bytes));
  MOTLEY_TRY_VOID(device_.copy_out(copy, static_cast<std::byte*>(arena_.data()) + logits_.value()));
  const Elements values(copy, stage_.element_bytes);
  std::vector<float> result(count);
  for (size_t i = 0; i < count; ++i)
    result[i] = static_cast<float>(values.get(static_cast<int64_t>(i)));
  return result;
}

void WholeModelEngine::run(const BoundProgram& program) {
  for (const Instruction& instruction : program.instructions) execute(device_, instruction.call);
}

// --- gradients and the update

Result<GradientSpans> WholeModelEngine::gradients() {
  MOTLEY_TRY(const std::span<std::byte> view, gradients_.pull());
  gradients_exposed_ = true;
  GradientSpans spans;
  if (exact())
    spans.fixed = values<int64_t>(view, Bytes(0), parameters_.elements());
  else if (stage_.element_bytes == 8)
    spans.doubles = values<double>(view, Bytes(0), parameters_.elements());
  else
    spans.floats = values<float>(view, Bytes(0), parameters_.elements());
  return spans;
}

Result<Unit> WholeModelEngine::push_gradients() {
  if (!gradients_exposed_) return Unit{};
  gradients_exposed_ = false;
  return gradients_.push();
}

Result<double> WholeModelEngine::gradient_norm(int64_t tokens) {
  MOTLEY_TRY_VOID(push_gradients());
  MOTLEY_TRY(const double norm, exact() ? exact_norm() : fast_norm());
  return norm / static_cast<double>(tokens);
}

Result<double> WholeModelEngine::fast_norm() {
  int64_t number = 0;
  for (const FlatTensor& flat : tensors())
    execute(device_, SquareSumArgs{
                         .x = Address::of(gradients_.device() + flat.offset * stage_.element_bytes),
                         .out = exchange_->square_sum(number++),
                         .count = flat.elements()});
  MOTLEY_TRY(const double squares, exchange_->sum_of_squares(number));
  return std::sqrt(squares);
}

Result<double> WholeModelEngine::exact_norm() {
  MOTLEY_TRY(const std::span<std::byte> view, gradients_.pull());
  const auto gradient = values<const int64_t>(view, Bytes(0), parameters_.elements());
  largest_gradient_ = largest_magnitude(device_, gradient);
  return std::ldexp(magnitude(device_, gradient, largest_gradient_), -exponent_);
}

Result<Unit> WholeModelEngine::update(int64_t step, double lr, int64_t tokens, double clip_factor) {
  MOTLEY_TRY_VOID(push_gradients());
  const OptimizerSpec& optimizer = options_.optimizer;
  AdamwArgs args;
  args.lr = lr;
  args.beta1 = optimizer.beta1;
  args.beta2 = optimizer.beta2;
  args.eps = optimizer.eps;
  args.gradient_scale = clip_factor / static_cast<double>(tokens);
  args.correction1 = 1 - std::pow(optimizer.beta1, static_cast<double>(step));
  args.correction2 = 1 - std::pow(optimizer.beta2, static_cast<double>(step));
  for (const FlatTensor& flat : tensors()) {
    args.weight_decay = flat.tensor.decay ? optimizer.weight_decay : 0;
    // Fast takes a tensor at once; exact as much as fits the scratch for converted gradients.
    const int64_t chunk = exact() ? kUpdateChunk : flat.elements();
    for (int64_t first = 0; first < flat.elements(); first += chunk)
      update_range(args, flat.offset + first, std::min(chunk, flat.elements() - first));
  }
  return device_.synchronize();
}

void WholeModelEngine::update_range(AdamwArgs args, int64_t first, int64_t count) {
  const int64_t bytes = stage_.element_bytes;
  args.count = count;
  args.parameter = Address::of(weights_.device() + first * bytes);
  args.m = Address::of(adam_m_.device() + first * bytes);
  args.v = Address::of(adam_v_.device() + first * bytes);
  args.gradient = Address::of(gradients_.device() + first * bytes);
  if (exact()) {
    args.gradient = Address::of(arena_.data());
    execute(device_, FromFixedArgs{.acc = Address::of(gradients_.device() + first * 8),
                                   .out = args.gradient,
                                   .count = count,
                                   .exponent = exponent_});
  }
  execute(device_, args);
}

// --- state

SharedMemory& WholeModelEngine::memory_of(State which) {
  switch (which) {
    case State::kWeight:
      return weights_;
    case State::kAdamM:
      return adam_m_;
    case State::kAdamV:
      return adam_v_;
  }
  return weights_;
}

Result<std::string> WholeModelEngine::weights_hash() {
  MOTLEY_TRY(const std::span<std::byte> view, weights_.pull());
  const Elements weights(view, stage_.element_bytes);
  std::vector<float> rounded(static_cast<size_t>(parameters_.elements()));
  for (size_t i = 0; i < rounded.size(); ++i)
    rounded[i] = static_cast<float>(weights.get(static_cast<int64_t>(i)));
  return xxh3_64_hex(rounded.data(), rounded.size() * sizeof(float));
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(Device& device, const EngineOptions& options,
                                               uint64_t seed) {
  MOTLEY_TRY_VOID(validate(options.model));
  MOTLEY_CHECK(!options.micro_batches.empty(), "an engine without a micro-batch");
  for (int samples : options.micro_batches) MOTLEY_CHECK_LT(0, samples);
  auto engine = std::make_unique<WholeModelEngine>(device, options);
  MOTLEY_TRY_VOID(engine->set_up(seed));
  return engine;
}

}  // namespace motley
