#include "worker/engine/exchange.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace motley {

Exchange::Exchange(Device& device, const StageSpec& stage, const ExchangeLayout& layout)
    : device_(&device), stage_(stage), layout_(layout), scales_put_(device.make_mark()) {
  for (int slot = 0; slot < stage.in_flight; ++slot) {
    pushed_.push_back(device.make_mark());
    losses_.push_back(device.make_mark());
  }
  for (int i = 0; i < 2; ++i)
    landings_[static_cast<size_t>(i)] = {layout.landing_at(i), device.make_mark(),
                                         device.make_mark()};
}

Result<Exchange> Exchange::allocate(Device& device, const StageSpec& stage,
                                    const ExchangeLayout& layout, MemoryAccount& account) {
  Exchange exchange(device, stage, layout);
  MOTLEY_TRY(exchange.memory_,
             SharedMemory::allocate(device, layout.size(stage.in_flight), account));
  MOTLEY_TRY_VOID(exchange.memory_.have_view());
  return exchange;
}

// --- samples in

Result<Unit> Exchange::check_tokens(std::span<const int32_t> tokens) const {
  for (int32_t token : tokens)
    if (token < 0 || token >= stage_.model.vocab)
      return fail(ErrorCode::kInvalidSpec, "the data has token " + std::to_string(token) +
                                               ", outside model.vocab " +
                                               std::to_string(stage_.model.vocab));
  return Unit{};
}

void Exchange::fill(Bytes base, const MicroBatchInput& input) {
  const int64_t context = stage_.model.context;
  const auto position = values<int64_t>(memory_.host(), base + layout_.position, 2);
  position[0] = input.step;
  position[1] = input.first_sample;
  const auto fill_rows = [&](Bytes offset, int64_t shift) {
    const auto row_major = values<int32_t>(memory_.host(), base + offset, layout_.rows);
    for (int sample = 0; sample < input.samples; ++sample) {
      const int32_t* row = input.tokens.data() + sample * (context + 1) + shift;
      std::copy(row, row + context, row_major.begin() + sample * context);
    }
    std::fill(row_major.begin() + input.samples * context, row_major.end(), 0);
  };
  if (stage_.has_embedding()) fill_rows(layout_.tokens, 0);
  if (stage_.has_head()) fill_rows(layout_.targets, 1);
}

Result<Unit> Exchange::put_samples(int slot, const MicroBatchInput& input) {
  const int64_t context = stage_.model.context;
  if (stage_.has_embedding() || stage_.has_head()) {
    MOTLEY_CHECK_EQ(input.tokens.size(), static_cast<size_t>(input.samples * (context + 1)));
    MOTLEY_TRY_VOID(check_tokens(input.tokens));
  }
  if (memory_.in_place()) {
    fill(layout_.slot(slot), input);
    return Unit{};
  }
  Landing& landing = landings_[next_landing_];
  next_landing_ = (next_landing_ + 1) % landings_.size();
  MOTLEY_TRY_VOID(landing.arrived->wait());  // its view may be written again
  fill(landing.offset, input);
  MOTLEY_TRY_VOID(
      memory_.push_beside(landing.offset, layout_.losses, *landing.taken, *landing.arrived));
  landing.arrived->hold_stream();
  execute(*device_, CopyArgs{.in = Address::of(memory_.device() + landing.offset.value()),
                             .out = Address::of(this->slot(slot)),
                             .bytes = layout_.losses.value()});
  landing.taken->set();
  return Unit{};
}

// --- boundaries

Bytes Exchange::place(int slot, Boundary boundary) const {
  const Bytes base = layout_.slot(slot);
  switch (boundary) {
    case Boundary::kInput:
      return base + layout_.input;
    case Boundary::kOutput:
    case Boundary::kOutputGradient:
      return base + layout_.output;
    case Boundary::kInputGradient:
      return base + layout_.d_input;
  }
  return base;
}

Bytes Exchange::boundary_bytes(int samples) const {
  const int64_t rows = int64_t{samples} * stage_.model.context;
  return Bytes(rows * stage_.model.width * stage_.boundary_element_bytes());
}

Result<std::span<std::byte>> Exchange::pull(int slot, Boundary boundary, int samples) {
  return memory_.pull(place(slot, boundary), boundary_bytes(samples));
}

Result<Unit> Exchange::push(int slot, Boundary boundary, int samples) {
  MOTLEY_TRY_VOID(memory_.enqueue_push(place(slot, boundary), boundary_bytes(samples)));
  pushed_[static_cast<size_t>(slot)]->set();
  return Unit{};
}

std::span<std::byte> Exchange::view(int slot, Boundary boundary, int samples) {
  (void)pushed_[static_cast<size_t>(slot)]->wait();  // a lost device shows where its work is due
  return memory_.host().subspan(static_cast<size_t>(place(slot, boundary).value()),
                                static_cast<size_t>(boundary_bytes(samples).value()));
}

// --- losses and flags out

void Exchange::clear() {
  due_.clear();
  sums_ = {};
  execute(*device_, ZeroArgs{.out = overflow_flag(), .bytes = sizeof(int64_t)});
}

void Exchange::put_scales(double loss_scale, int exponent) {
  (void)scales_put_->wait();  // a lost device shows where its work is due
  values<double>(memory_.host(), layout_.loss_scale, 1)[0] = loss_scale;
  values<int32_t>(memory_.host(), layout_.exponent, 1)[0] = exponent;
  (void)memory_.enqueue_push(layout_.loss_scale, layout_.landing - layout_.loss_scale);
  scales_put_->set();
}

Result<Unit> Exchange::make_room(int slot) {
  const auto in_slot = [&](const Due& due) { return due.slot == slot; };
  while (std::any_of(due_.begin(), due_.end(), in_slot)) {
    MOTLEY_TRY_VOID(losses_[static_cast<size_t>(due_.front().slot)]->wait());
    take_losses(due_.front());
    due_.pop_front();
  }
  return Unit{};
}

Bytes Exchange::losses_bytes(int samples) const {
  return Bytes(int64_t{samples} * stage_.model.context * stage_.element_bytes());
}

Result<Unit> Exchange::add_losses(int slot, int samples) {
  // Ranks that share the head all have the losses; the first speaks for them.
  if (!stage_.has_head() || stage_.member != 0) return Unit{};
  MOTLEY_TRY_VOID(memory_.enqueue_pull(layout_.slot(slot) + layout_.losses, losses_bytes(samples)));
  losses_[static_cast<size_t>(slot)]->set();
  due_.push_back({slot, samples});
  return Unit{};
}

void Exchange::take_losses(const Due& due) {
  const int64_t context = stage_.model.context;
  const Bytes offset = layout_.slot(due.slot) + layout_.losses;
  const std::span<std::byte> view = memory_.host().subspan(
      static_cast<size_t>(offset.value()), static_cast<size_t>(losses_bytes(due.samples).value()));
  const bool exact = stage_.numerics == Numerics::kExact;
  const Elements losses(view, full_precision(stage_.precision));
  for (int sample = 0; sample < due.samples; ++sample) {
    double loss = 0;
    for (int64_t i = 0; i < context; ++i) loss += losses.get(sample * context + i);
    sums_.loss += loss;
    if (exact && std::isfinite(loss)) sums_.loss_fixed += std::llrint(loss * kLossUnit);
    if (exact && !std::isfinite(loss)) sums_.overflow = 1;
  }
  sums_.tokens += due.samples * context;
}

Result<LossSums> Exchange::sums() {
  MOTLEY_TRY(const std::span<std::byte> view,
             memory_.pull(layout_.overflow, Bytes(sizeof(int64_t))));
  for (; !due_.empty(); due_.pop_front()) take_losses(due_.front());
  LossSums sums = sums_;
  sums.overflow |= values<int64_t>(view, Bytes(0), 1)[0];
  return sums;
}

}  // namespace motley
