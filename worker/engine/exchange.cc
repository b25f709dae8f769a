#include "worker/engine/exchange.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace motley {

Result<Exchange> Exchange::allocate(Device& device, const StageSpec& stage,
                                    const ExchangeLayout& layout, MemoryAccount& account) {
  Exchange exchange(stage, layout);
  MOTLEY_TRY(exchange.memory_,
             SharedMemory::allocate(device, layout.size(stage.in_flight), account));
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

Result<Unit> Exchange::put_samples(int slot, const MicroBatchInput& input) {
  const int64_t context = stage_.model.context;
  if (stage_.has_embedding() || stage_.has_head()) {
    MOTLEY_CHECK_EQ(input.tokens.size(), static_cast<size_t>(input.samples * (context + 1)));
    MOTLEY_TRY_VOID(check_tokens(input.tokens));
  }
  const Bytes base = layout_.slot(slot);
  const auto position = values<int64_t>(memory_.host(), base + layout_.position, 2);
  position[0] = input.step;
  position[1] = input.first_sample;
  const auto fill = [&](Bytes offset, int64_t shift) {
    const auto row_major = values<int32_t>(memory_.host(), base + offset, layout_.rows);
    for (int sample = 0; sample < input.samples; ++sample) {
      const int32_t* row = input.tokens.data() + sample * (context + 1) + shift;
      std::copy(row, row + context, row_major.begin() + sample * context);
    }
    std::fill(row_major.begin() + input.samples * context, row_major.end(), 0);
  };
  if (stage_.has_embedding()) fill(layout_.tokens, 0);
  if (stage_.has_head()) fill(layout_.targets, 1);
  return memory_.push(base, Bytes(layout_.losses.value()));
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
  return memory_.push(place(slot, boundary), boundary_bytes(samples));
}

std::span<std::byte> Exchange::view(int slot, Boundary boundary, int samples) {
  return memory_.host().subspan(static_cast<size_t>(place(slot, boundary).value()),
                                static_cast<size_t>(boundary_bytes(samples).value()));
}

// --- losses and flags out

void Exchange::clear(Device& device) {
  execute(device, ZeroArgs{.out = overflow_flag(), .bytes = sizeof(int64_t)});
}

Result<Unit> Exchange::add_losses(int slot, int samples, LossSums* sums) {
  // Ranks that share the head all have the losses; the first speaks for them.
  if (!stage_.has_head() || stage_.member != 0) return Unit{};
  const int64_t context = stage_.model.context;
  const Bytes size(samples * context * stage_.element_bytes());
  MOTLEY_TRY(const std::span<std::byte> view,
             memory_.pull(layout_.slot(slot) + layout_.losses, size));
  const bool exact = stage_.numerics == Numerics::kExact;
  const Elements losses(view, full_precision(stage_.precision));
  for (int sample = 0; sample < samples; ++sample) {
    double loss = 0;
    for (int64_t i = 0; i < context; ++i) loss += losses.get(sample * context + i);
    sums->loss += loss;
    if (exact && std::isfinite(loss)) sums->loss_fixed += std::llrint(loss * kLossUnit);
    if (exact && !std::isfinite(loss)) sums->overflow = 1;
  }
  sums->tokens += samples * context;
  return Unit{};
}

Result<int64_t> Exchange::overflow() {
  MOTLEY_TRY(const std::span<std::byte> view,
             memory_.pull(layout_.overflow, Bytes(sizeof(int64_t))));
  return values<int64_t>(view, Bytes(0), 1)[0];
}

}  // namespace motley
