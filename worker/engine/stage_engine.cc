#include "worker/engine/stage_engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "core/rank_memory.h"
#include "worker/layers/head.h"

namespace motley {
namespace {

/// Of all layers of the model, as profilers show them.
std::vector<std::string> layer_names(const ModelSpec& model) {
  std::vector<std::string> names{"embedding"};
  for (int block = 0; block < model.layers; ++block)
    names.push_back("block " + std::to_string(block));
  names.emplace_back("head");
  return names;
}
/// Of initial weights made at a time where they are not made in place.
constexpr int64_t kInitialisedBytes = 4 << 20;

}  // namespace

StageEngine::StageEngine(Device& device, const EngineOptions& options)
    : device_(device),
      options_(options),
      stage_(stage_spec(options, traits_of(device))),
      layer_names_(layer_names(options.model)),
      largest_(*std::max_element(options.micro_batches.begin(), options.micro_batches.end())),
      parameters_(holdings_of(stage_.model, stage_.layers, stage_.member)),
      exchange_layout_(stage_, largest_),
      update_layout_(options, parameters_),
      plan_(options, stage_, parameters_, exchange_layout_,
            Updater::memory(options, update_layout_, stage_.element_bytes()),
            device.host_accessible()) {
  if (options_.account == nullptr) options_.account = &own_account_;
}

// --- set-up

Result<Unit> StageEngine::set_up() {
  std::map<int, Program> programs;
  for (const int samples : options_.micro_batches) {
    programs[samples] = compile_training(stage_, parameters_, exchange_layout_, samples);
    plan_.require(programs[samples]);
  }
  Address output;
  const Program evaluation =
      compile_forward(stage_, parameters_, exchange_layout_, largest_, &output);
  plan_.require(evaluation);
  logits_ = evaluation.symbols[output.symbol_id()].offset;

  MOTLEY_TRY_VOID(allocate());
  for (const auto& [samples, program] : programs)
    programs_[samples] = bind_to_slots(program, stage_.in_flight);
  evaluation_ = bind_to_slots(evaluation, 1);
  return initialise();
}

Result<Unit> StageEngine::allocate() {
  const Bytes total = plan_.estimate().total();
  if (total > options_.memory_limit)
    return fail(ErrorCode::kOutOfMemory, "micro-batch " + std::to_string(largest_) + " needs " +
                                             format_bytes(total) + " on " + device_.name() +
                                             ", more than its limit of " +
                                             format_bytes(options_.memory_limit));
  MemoryAccount& account = *options_.account;
  MOTLEY_TRY(weights_,
             SharedMemory::allocate(device_, plan_.parameters, account, placement_of(options_)));
  MOTLEY_TRY(gradients_, SharedMemory::allocate(device_, plan_.gradients, account));
  if (options_.exchanges_weights) MOTLEY_TRY_VOID(weights_.have_view());
  if (options_.exchanges_gradients) MOTLEY_TRY_VOID(have_staged_gradients());
  MOTLEY_TRY(window_, MemoryWindow::create(device_));
  if (is_reduced(stage_.precision)) {
    MOTLEY_TRY(rounded_, device_.allocate(plan_.rounded));
    const int64_t bytes = parameters_.elements() * reduced_bytes(stage_.precision);
    if (const int64_t beyond = plan_.rounded.value() - bytes; beyond > 0)
      execute(device_,
              ZeroArgs{.out = Address::of(static_cast<std::byte*>(rounded_.data()) + bytes),
                       .bytes = beyond});
  }
  MOTLEY_TRY_VOID(device_.reserve_scratch(plan_.scratch));
  MOTLEY_TRY(exchange_, Exchange::allocate(device_, stage_, exchange_layout_, account));
  MOTLEY_TRY(arena_, device_.allocate(plan_.kept * plan_.slots + plan_.arena));
  other_charge_ =
      MemoryCharge(account, MemoryUse::kDevice, arena_.size() + rounded_.size() + plan_.scratch);
  if (plan_.staging > Bytes(0)) {
    MOTLEY_TRY(staging_, PinnedMemory::allocate(device_, plan_.staging, account));
  }
  MOTLEY_TRY(updater_, Updater::create(device_, options_, update_layout_, weights_, gradients_,
                                       static_cast<std::byte*>(arena_.data())));
  return Unit{};
}

MemoryPoint StageEngine::memory() const {
  return {.micro_batch = largest_,
          .fixed = weights_.on_device() + rounded_.size() + gradients_.size() + exchange_->size() +
                   updater_->size(),
          .activations = arena_.size() + plan_.scratch};
}

StageEngine::BoundProgram StageEngine::bind_to_slots(const Program& program, int slots) const {
  BoundProgram bound;
  auto* const arena = static_cast<std::byte*>(arena_.data());
  const std::vector<NeededBefore> needs = needs_of_forward(program);
  const std::vector<FinalAfter> finals = finals_of_backward(program);
  for (int slot = 0; slot < slots; ++slot) {
    const std::vector<Instruction> instructions =
        bind(program, {.parameters = weights_.device(),
                       .rounded = static_cast<std::byte*>(rounded_.data()),
                       .gradients = gradients_.device(),
                       .exchange = exchange_->common(),
                       .slot = exchange_->slot(slot),
                       .kept = arena + (plan_.arena + plan_.kept * slot).value(),
                       .activations = arena});
    const std::span all(instructions);
    bound.forward.push_back(record(all.first(program.backward), needs, {}));
    bound.backward.push_back(record(all.subspan(program.backward), {}, finals));
  }
  for (size_t i = 0; i < program.instructions.size(); ++i)
    (i < program.backward ? bound.work.forward : bound.work.backward) +=
        program.instructions[i].flops;
  return bound;
}

/// All at once where the whole is used at once: rounded, or by a device that is given the pass in
/// one piece.
std::vector<StageEngine::NeededBefore> StageEngine::needs_of_forward(const Program& program) const {
  if (!device_.host_accessible() || is_reduced(stage_.precision))
    return {{0, {0, held_elements()}}};
  std::vector<NeededBefore> needs;
  for (const NeededWeights& needed : program.needed_weights)
    needs.push_back({needed.before,
                     {needed.offset.value() / stage_.element_bytes(),
                      needed.size.value() / stage_.element_bytes()}});
  return needs;
}

/// Of a device that computes on its own all at the end: that finality is of no use to the host
/// before, and the pass stays in one piece.
std::vector<StageEngine::FinalAfter> StageEngine::finals_of_backward(const Program& program) const {
  const size_t count = program.instructions.size() - program.backward;
  if (count == 0) return {};
  if (!device_.host_accessible()) return {{count - 1, {0, held_elements()}}};
  const int64_t bytes = gradient_element_bytes(options_.numerics, stage_.element_bytes());
  std::vector<FinalAfter> finals;
  int64_t elements = 0;
  for (const FinalGradients& found : program.final_gradients) {
    const ParameterRange range{found.offset.value() / bytes, found.size.value() / bytes};
    finals.push_back({found.after - program.backward, range});
    elements += range.count;
  }
  MOTLEY_CHECK_EQ(elements, held_elements());
  return finals;
}

StageEngine::Pass StageEngine::record(std::span<const Instruction> instructions,
                                      std::span<const NeededBefore> needs,
                                      std::span<const FinalAfter> finals) const {
  Pass pass;
  std::vector<LayerCall> calls;
  std::vector<ParameterRange> needed;
  double flops = 0;
  const auto end_stretch = [&](auto after, double flops_before) {
    pass.push_back({.needs = std::exchange(needed, {}),
                    .calls = device_.record([this, calls = std::move(calls)] { enqueue(calls); }),
                    .flops = flops_before,
                    .after = after});
    calls.clear();
  };
  for (size_t i = 0; i < instructions.size(); ++i) {
    for (; !needs.empty() && needs.front().instruction == i; needs = needs.subspan(1)) {
      if (!calls.empty()) end_stretch(std::monostate(), 0);
      needed.push_back(needs.front().range);
    }
    const Instruction& instruction = instructions[i];
    flops += instruction.flops;
    if (const auto* call = std::get_if<OpCall>(&instruction.work))
      calls.push_back({*call, instruction.layer});
    else if (const auto* sum = std::get_if<GroupSum>(&instruction.work))
      end_stretch(*sum, std::exchange(flops, 0));
    else
      end_stretch(std::get<GroupGather>(instruction.work), std::exchange(flops, 0));
    for (; !finals.empty() && finals.front().instruction == i; finals = finals.subspan(1)) {
      if (!calls.empty()) end_stretch(std::monostate(), 0);
      pass.back().final_gradients.push_back(finals.front().range);
    }
  }
  if (!calls.empty()) end_stretch(std::monostate(), 0);
  return pass;
}

void StageEngine::enqueue(const std::vector<LayerCall>& calls) const {
  std::optional<WorkRange> of_layer;
  LayerIndex layer = -1;
  for (const LayerCall& call : calls) {
    if (std::exchange(layer, call.layer) != call.layer)
      of_layer.emplace(device_, layer_names_[static_cast<size_t>(layer)].c_str());
    execute(device_, call.call);
  }
}

Result<Unit> StageEngine::initialise() {
  const std::vector<LogicalTensor> all = logical_tensors(options_.model);
  for (const FlatTensor& flat : parameters_.tensors()) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const LogicalTensor& tensor) {
      return tensor.name == flat.tensor.name;
    });
    const auto number = static_cast<int>(found - all.begin());
    MOTLEY_TRY_VOID(initialise_tensor(flat, number));
  }
  MOTLEY_TRY_VOID(window_->flush());
  begin_step();
  return device_.synchronize();
}

Result<Unit> StageEngine::initialise_tensor(const FlatTensor& flat, int tensor_number) {
  const int64_t rows = flat.slice.extent[0];
  const int64_t row_bytes = flat.elements() / std::max<int64_t>(rows, 1) * stage_.element_bytes();
  const Bytes begin(flat.offset * stage_.element_bytes());
  if (device_.host_accessible()) {
    host_for(device_, rows, [&](int64_t row) {
      initialise_row(flat, tensor_number, row,
                     weights_.host().subspan(static_cast<size_t>(begin.value() + row * row_bytes),
                                             static_cast<size_t>(row_bytes)));
    });
    return Unit{};
  }
  std::vector<std::byte> some;
  const int64_t most = std::max<int64_t>(1, kInitialisedBytes / std::max<int64_t>(row_bytes, 1));
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t count = std::min(most, rows - first);
    some.resize(static_cast<size_t>(count * row_bytes));
    host_for(device_, count, [&](int64_t row) {
      initialise_row(flat, tensor_number, first + row,
                     std::span(some).subspan(static_cast<size_t>(row * row_bytes),
                                             static_cast<size_t>(row_bytes)));
    });
    MOTLEY_TRY_VOID(window_->write(weights_, begin + Bytes(first * row_bytes), some));
  }
  return Unit{};
}

void StageEngine::initialise_row(const FlatTensor& flat, int tensor_number, int64_t row,
                                 std::span<std::byte> into) const {
  Elements weights(into, full_precision(stage_.precision));
  Slice slice = flat.slice;
  slice.start[0] += row;
  slice.extent[0] = 1;
  for (const CopyRun& run : copy_runs(whole(flat.tensor.shape), slice))
    for (int64_t i = 0; i < run.count; ++i)
      weights.set(run.to_offset + i, initial_value(options_.model, flat.tensor, tensor_number,
                                                   run.from_offset + i, options_.seed));
}

// --- running

void StageEngine::begin_step() {
  if (std::exchange(staging_gradients_, false)) staged_->end();
  execute(device_,
          ZeroArgs{.out = Address::of(gradients_.device()), .bytes = gradients_.size().value()});
  exchange_->clear();
  // What is quantised is a scaled gradient.
  if (std::exchange(scales_changed_, false))
    exchange_->put_scales(std::ldexp(1.0, loss_scale_exponent_), exponent_ - loss_scale_exponent_);
  window_->forget();
  exposed_.clear();
  gradients_scaled_ = false;
  gradients_final_ = false;
}

Result<Unit> StageEngine::put_samples(int slot, const MicroBatchInput& input) {
  MOTLEY_CHECK_LE(input.samples, largest_);
  return exchange_->put_samples(slot, input);
}

Result<Unit> StageEngine::forward(int slot, int samples) {
  return run_forward(slot, samples, nullptr);
}

Result<Unit> StageEngine::forward_first(int slot, int samples, const WeightsNeeded& before_use) {
  return run_forward(slot, samples, &before_use);
}

Result<Unit> StageEngine::run_forward(int slot, int samples, const WeightsNeeded* before_use) {
  const WorkRange range(device_, "forward");
  MOTLEY_TRY_VOID(exchange_->make_room(slot));
  MOTLEY_TRY_VOID(run(programs_.at(samples).forward[static_cast<size_t>(slot)], before_use));
  return exchange_->add_losses(slot, samples);
}

Result<Unit> StageEngine::backward(int slot, int samples) {
  return run_backward(slot, samples, nullptr);
}

Result<Unit> StageEngine::backward_last(int slot, int samples, const GradientsFinal& on_final) {
  MOTLEY_TRY_VOID(run_backward(slot, samples, &on_final));
  gradients_scaled_ = false;
  gradients_final_ = true;
  return Unit{};
}

Result<Unit> StageEngine::run_backward(int slot, int samples, const GradientsFinal* on_final) {
  MOTLEY_CHECK(!gradients_final_, "a backward pass after the last of its step");
  const WorkRange range(device_, "backward");
  gradients_scaled_ = options_.scale_loss && !exact();
  return run(programs_.at(samples).backward[static_cast<size_t>(slot)], nullptr, on_final);
}

Result<Unit> StageEngine::evaluate(int samples) {
  const WorkRange range(device_, "evaluation");
  MOTLEY_TRY_VOID(exchange_->make_room(0));
  MOTLEY_TRY_VOID(run(evaluation_.forward[0]));
  return exchange_->add_losses(0, samples);
}

Result<std::span<std::byte>> StageEngine::pull(int slot, Boundary boundary, int samples) {
  return exchange_->pull(slot, boundary, samples);
}
std::span<std::byte> StageEngine::view(int slot, Boundary boundary, int samples) {
  return exchange_->view(slot, boundary, samples);
}
Result<Unit> StageEngine::push(int slot, Boundary boundary, int samples) {
  return exchange_->push(slot, boundary, samples);
}

Result<LossSums> StageEngine::sums() {
  if (std::exchange(gradients_scaled_, false)) unscale_gradients({0, parameters_.elements()});
  return exchange_->sums();
}

/// Only of fast's, which are elements of full precision.
void StageEngine::unscale_gradients(const ParameterRange& range) {
  const int64_t offset = range.offset * stage_.element_bytes();
  execute(device_, ScaleArgs{.x = Address::of(gradients_.device() + offset),
                             .overflow = exchange_->overflow_flag(),
                             .count = range.count,
                             .factor = std::ldexp(1.0, -loss_scale_exponent_)});
}

/// Brings the copy of the weights that products read up to date.
void StageEngine::round_weights() {
  if (!std::exchange(weights_changed_, false) || !is_reduced(stage_.precision)) return;
  const int64_t all = parameters_.elements();
  const int64_t chunk = plan_.widens ? kUpdateChunk : all;
  auto* const rounded = static_cast<std::byte*>(rounded_.data());
  for (int64_t first = 0; first < all; first += chunk)
    execute(device_,
            RoundArgs{.in = Address::of(weights_.device() + first * stage_.element_bytes()),
                      .out = Address::of(rounded + first * reduced_bytes(stage_.precision)),
                      .count = std::min(chunk, all - first)});
}

Result<Unit> StageEngine::run(const Pass& pass, const WeightsNeeded* before_use,
                              const GradientsFinal* on_final) {
  for (const Stretch& stretch : pass) {
    if (before_use != nullptr)
      for (const ParameterRange& range : stretch.needs) MOTLEY_TRY_VOID((*before_use)(range));
    round_weights();
    stretch.calls->replay();
    if (const auto* sum = std::get_if<GroupSum>(&stretch.after))
      MOTLEY_TRY_VOID(sum_over_group(*sum, stretch.flops));
    else if (const auto* gather = std::get_if<GroupGather>(&stretch.after))
      MOTLEY_TRY_VOID(gather_over_group(*gather, stretch.flops));
    if (on_final != nullptr) report(stretch, *on_final);
  }
  return Unit{};
}

void StageEngine::report(const Stretch& stretch, const GradientsFinal& on_final) {
  for (const ParameterRange& range : stretch.final_gradients) {
    if (gradients_scaled_) unscale_gradients(range);
    on_final(range);
  }
}

Result<Unit> StageEngine::sum_over_group(const GroupSum& sum, double flops) {
  if (!is_reduced(stage_.precision))
    return sum_elements(sum.data.as<std::byte>(), sum.count, flops);
  const auto size = static_cast<size_t>(sum.count * reduced_bytes(stage_.precision));
  const std::span<float> wide = values<float>(staging_.bytes(), Bytes(0), sum.count);
  std::span<std::byte> stored(sum.data.as<std::byte>(), size);
  if (!device_.host_accessible()) {
    stored = staging_.bytes().subspan(wide.size_bytes(), size);
    MOTLEY_TRY_VOID(device_.enqueue_copy_out(stored, sum.data.as<std::byte>()));
  }
  MOTLEY_TRY_VOID(device_.synchronize());
  widen_elements(stored, stage_.precision, wide);
  MOTLEY_TRY_VOID(options_.group->sum(wide, flops));
  round_elements(wide, stage_.precision, stored);
  return device_.host_accessible() ? Result<Unit>(Unit{})
                                   : device_.enqueue_copy_in(sum.data.as<std::byte>(), stored);
}

Result<Unit> StageEngine::gather_over_group(const GroupGather& gather, double flops) {
  // Everybody adds what it has to zeros elsewhere: one collective does for both.
  const int64_t members = stage_.shape().members;
  const int64_t bytes = gather.count * stage_.element_bytes();
  auto* const all = gather.all.as<std::byte>();
  execute(device_, ZeroArgs{.out = gather.all, .bytes = members * bytes});
  execute(
      device_,
      CopyArgs{.in = gather.own, .out = Address::of(all + stage_.member * bytes), .bytes = bytes});
  return sum_elements(all, members * gather.count, flops);
}

Result<Unit> StageEngine::sum_elements(std::byte* data, int64_t count, double flops) {
  MOTLEY_CHECK(options_.group != nullptr, "a shared stage without its group");
  const auto bytes = static_cast<size_t>(count * stage_.element_bytes());
  std::span<std::byte> host(data, bytes);
  if (!device_.host_accessible()) {
    host = staging_.bytes().first(bytes);
    MOTLEY_TRY_VOID(device_.enqueue_copy_out(host, data));
  }
  MOTLEY_TRY_VOID(device_.synchronize());
  if (stage_.element_bytes() == 8)
    MOTLEY_TRY_VOID(options_.group->sum(values<double>(host, Bytes(0), count), flops));
  else
    MOTLEY_TRY_VOID(options_.group->sum(values<float>(host, Bytes(0), count), flops));
  return device_.host_accessible() ? Result<Unit>(Unit{}) : device_.enqueue_copy_in(data, host);
}

Result<std::vector<float>> StageEngine::logits(std::span<const int32_t> inputs, int samples) {
  MOTLEY_CHECK(stage_.has_embedding() && stage_.has_head() && stage_.shape().members == 1,
               "logits of a part of a model");
  // As samples whose last target is of no interest.
  const auto context = static_cast<size_t>(options_.model.context);
  std::vector<int32_t> tokens;
  for (size_t first = 0; first < inputs.size(); first += context) {
    const auto sample = inputs.subspan(first, context);
    tokens.insert(tokens.end(), sample.begin(), sample.end());
    tokens.push_back(0);
  }
  MOTLEY_TRY_VOID(put_samples(0, {.tokens = tokens, .samples = samples}));
  MOTLEY_TRY_VOID(run(evaluation_.forward[0]));
  const auto vocab = static_cast<size_t>(options_.model.vocab);
  const auto stride = static_cast<size_t>(logits_stride(options_.model.vocab));
  std::vector<std::byte> copy(inputs.size() * stride *
                              static_cast<size_t>(reduced_bytes(stage_.precision)));
  MOTLEY_TRY_VOID(device_.copy_out(copy, static_cast<std::byte*>(arena_.data()) + logits_.value()));
  const Elements elements(copy, stage_.precision);
  std::vector<float> result(inputs.size() * vocab);
  for (size_t i = 0; i < result.size(); ++i)
    result[i] =
        static_cast<float>(elements.get(static_cast<int64_t>(i / vocab * stride + i % vocab)));
  return result;
}

// --- gradients and the update

Result<GradientSpans> StageEngine::gradients(std::span<const ParameterRange> parts) {
  const int64_t bytes = gradient_element_bytes(options_.numerics, stage_.element_bytes());
  MOTLEY_TRY_VOID(gradients_.have_view());
  MOTLEY_TRY_VOID(push_gradients());
  for (const ParameterRange& part : parts)
    MOTLEY_TRY_VOID(gradients_.enqueue_pull(Bytes(part.offset * bytes), Bytes(part.count * bytes)));
  MOTLEY_TRY_VOID(device_.synchronize());
  exposed_.assign(parts.begin(), parts.end());
  return gradient_spans();
}

Result<GradientSpans> StageEngine::staged_gradients() {
  if (gradients_.in_place()) return gradients();
  MOTLEY_TRY_VOID(have_staged_gradients());
  MOTLEY_TRY_VOID(push_gradients());
  staged_->begin();
  staging_gradients_ = true;
  GradientSpans spans = gradient_spans();
  spans.staged = &*staged_;
  return spans;
}

Result<Unit> StageEngine::have_staged_gradients() {
  if (gradients_.in_place() || staged_) return Unit{};
  MOTLEY_TRY_VOID(gradients_.have_view());
  staged_.emplace(device_, gradients_,
                  gradient_element_bytes(options_.numerics, stage_.element_bytes()));
  return Unit{};
}

GradientSpans StageEngine::gradient_spans() {
  const std::span<std::byte> view = gradients_.host();
  GradientSpans spans;
  if (exact())
    spans.fixed = values<int64_t>(view, Bytes(0), parameters_.elements());
  else if (stage_.element_bytes() == 8)
    spans.doubles = values<double>(view, Bytes(0), parameters_.elements());
  else
    spans.floats = values<float>(view, Bytes(0), parameters_.elements());
  return spans;
}

Result<DeviceArray> StageEngine::device_gradients() {
  MOTLEY_TRY_VOID(push_gradients());
  const SumType element = exact()                       ? SumType::kInt64
                          : stage_.element_bytes() == 8 ? SumType::kFloat64
                                                        : SumType::kFloat32;
  return DeviceArray{gradients_.device(), parameters_.elements(), element};
}

Result<Unit> StageEngine::push_gradients() {
  if (std::exchange(staging_gradients_, false)) staged_->end();
  const int64_t bytes = gradient_element_bytes(options_.numerics, stage_.element_bytes());
  for (const ParameterRange& part : exposed_)
    MOTLEY_TRY_VOID(gradients_.enqueue_push(Bytes(part.offset * bytes), Bytes(part.count * bytes)));
  exposed_.clear();
  return Unit{};
}

Result<double> StageEngine::gradient_norm(int64_t tokens, Communicator& world) {
  MOTLEY_TRY_VOID(push_gradients());
  MOTLEY_TRY(const double norm, updater_->norm(world, exponent_, *window_));
  return norm / static_cast<double>(tokens);
}

Result<Unit> StageEngine::update(int64_t step, double lr, int64_t tokens, double clip_factor) {
  const WorkRange range(device_, "update");
  MOTLEY_TRY_VOID(push_gradients());
  window_->forget();
  // A CPU that stands for one in reduced precision would need room for all of them as floats.
  const bool rounds = is_reduced(stage_.precision) && !plan_.widens;
  weights_changed_ = !rounds || (weights_changed_ && !updater_->updates_all());
  return updater_->update(step, lr, clip_factor / static_cast<double>(tokens), exponent_,
                          rounds ? Address::of(rounded_.data()) : Address());
}

int64_t StageEngine::updated_elements() const { return update_layout_.elements; }

void StageEngine::set_exact_exponent(int exponent) {
  exponent_ = exponent;
  scales_changed_ = true;
}

void StageEngine::set_loss_scale_exponent(int exponent) {
  MOTLEY_CHECK(options_.scale_loss || exponent == 0, "a scale for a loss that is not scaled");
  loss_scale_exponent_ = exponent;
  scales_changed_ = true;
}

int StageEngine::next_exact_exponent(bool overflowed) const {
  return overflowed ? lowered_exponent(exponent_)
                    : next_exponent(exponent_, updater_->largest_gradient());
}

// --- state

const std::vector<FlatTensor>& StageEngine::tensors(State which) const {
  return which == State::kWeight ? parameters_.tensors() : update_layout_.tensors;
}

SharedMemory& StageEngine::memory_of(State which) {
  return which == State::kWeight ? weights_ : updater_->device_state(which == State::kAdamV);
}

bool StageEngine::state_in_reach(State which) const {
  return device_.host_accessible() || in_host(which);
}

Result<std::span<std::byte>> StageEngine::state(State which) {
  if (!in_host(which)) {
    views_given_[static_cast<size_t>(which)] = true;
    return memory_of(which).pull();
  }
  MOTLEY_TRY_VOID(device_.synchronize());
  return updater_->host_state(which == State::kAdamV);
}

Result<Unit> StageEngine::read_state(State which, Bytes offset, std::span<std::byte> into) {
  if (!in_host(which)) return window_->read(memory_of(which), offset, into);
  MOTLEY_TRY_VOID(device_.synchronize());
  std::memcpy(into.data(), updater_->host_state(which == State::kAdamV).data() + offset.value(),
              into.size());
  return Unit{};
}

Result<Unit> StageEngine::write_state(State which, Bytes offset, std::span<const std::byte> from) {
  views_given_[static_cast<size_t>(which)] = false;  // what they show is of the past
  if (!in_host(which)) return window_->write(memory_of(which), offset, from);
  std::memcpy(updater_->host_state(which == State::kAdamV).data() + offset.value(), from.data(),
              from.size());
  return Unit{};
}

Result<Unit> StageEngine::state_written(State which) {
  if (which == State::kWeight) weights_changed_ = true;
  if (in_host(which)) return Unit{};
  MOTLEY_TRY_VOID(window_->flush());
  window_->forget();
  if (views_given_[static_cast<size_t>(which)]) MOTLEY_TRY_VOID(memory_of(which).enqueue_push());
  return device_.synchronize();
}

}  // namespace motley
