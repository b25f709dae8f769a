#include "worker/engine/exchange.h"

#include <algorithm>
#include <cmath>

namespace motley {

Result<Exchange> Exchange::allocate(Device& device, const StageSpec& stage,
                                    const ExchangeLayout& layout) {
  Exchange exchange(stage, layout);
  MOTLEY_TRY(exchange.memory_, SharedMemory::allocate(device, layout.size));
  return exchange;
}

Result<Unit> Exchange::check_tokens(std::span<const int32_t> tokens) const {
  for (int32_t token : tokens)
    if (token < 0 || token >= stage_.model.vocab)
      return fail(ErrorCode::kInvalidSpec, "the data has token " + std::to_string(token) +
                                               ", outside model.vocab " +
                                               std::to_string(stage_.model.vocab));
  return Unit{};
}

Result<Unit> Exchange::put_samples(std::span<const int32_t> tokens, int samples) {
  const int64_t context = stage_.model.context;
  MOTLEY_CHECK_EQ(tokens.size(), static_cast<size_t>(samples * (context + 1)));
  MOTLEY_TRY_VOID(check_tokens(tokens));
  const auto inputs = values<int32_t>(memory_.host(), layout_.tokens, layout_.rows);
  const auto targets = values<int32_t>(memory_.host(), layout_.targets, layout_.rows);
  for (int sample = 0; sample < samples; ++sample) {
    const int32_t* row = tokens.data() + sample * (context + 1);
    std::copy(row, row + context, inputs.begin() + sample * context);
    std::copy(row + 1, row + 1 + context, targets.begin() + sample * context);
  }
  std::fill(inputs.begin() + samples * context, inputs.end(), 0);
  std::fill(targets.begin() + samples * context, targets.end(), 0);
  return memory_.push(layout_.tokens, Bytes(layout_.losses.value() - layout_.tokens.value()));
}

void Exchange::clear(Device& device) {
  execute(device, ZeroArgs{.out = Address::of(memory_.device() + layout_.overflow.value()),
                           .bytes = sizeof(int64_t)});
}

Result<Unit> Exchange::add_losses(int samples, LossSums* sums) {
  MOTLEY_TRY(const std::span<std::byte> view, memory_.pull());
  const bool exact = stage_.numerics == Numerics::kExact;
  const int64_t context = stage_.model.context;
  const Elements losses(view.subspan(static_cast<size_t>(layout_.losses.value())),
                        stage_.element_bytes);
  sums->overflow |= values<int64_t>(view, layout_.overflow, 1)[0];
  for (int sample = 0; sample < samples; ++sample) {
    double loss = 0;
    for (int64_t i = 0; i < context; ++i) loss += losses.get(sample * context + i);
    sums->loss += loss;
    if (exact && std::isfinite(loss)) sums->loss_fixed += std::llrint(loss * kLossScale);
    if (exact && !std::isfinite(loss)) sums->overflow = 1;
  }
  sums->tokens += samples * context;
  return Unit{};
}

Address Exchange::square_sum(int64_t number) const {
  return Address::of(memory_.device() + layout_.norms.value() +
                     number * static_cast<int64_t>(sizeof(double)));
}

Result<double> Exchange::sum_of_squares(int64_t count) {
  MOTLEY_TRY(const std::span<std::byte> view, memory_.pull());
  double sum = 0;
  for (double square : values<double>(view, layout_.norms, count)) sum += square;
  return sum;
}

}  // namespace motley
