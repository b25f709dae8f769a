#pragma once
// What host and programs tell each other: tokens and targets in; losses, flags and norms out.

#include "worker/engine/engine.h"
#include "worker/engine/shared_memory.h"
#include "worker/engine/stage.h"

namespace motley {

class Exchange {
 public:
  static Result<Exchange> allocate(Device& device, const StageSpec& stage,
                                   const ExchangeLayout& layout);

  std::byte* device() const { return memory_.device(); }

  /// [samples, context + 1] tokens become inputs and targets; what a program of more samples reads
  /// beyond them is token 0. kInvalidSpec for a token outside the vocabulary.
  Result<Unit> put_samples(std::span<const int32_t> tokens, int samples);

  /// Clears the overflow flag.
  void clear(Device& device);
  /// Adds the losses of the first `samples` samples of the program that just ran, and its flag.
  Result<Unit> add_losses(int samples, LossSums* sums);

  /// Where square sum number `number` goes, and their sum in rising order.
  Address square_sum(int64_t number) const;
  Result<double> sum_of_squares(int64_t count);

 private:
  explicit Exchange(const StageSpec& stage, const ExchangeLayout& layout)
      : stage_(stage), layout_(layout) {}
  Result<Unit> check_tokens(std::span<const int32_t> tokens) const;

  StageSpec stage_;
  ExchangeLayout layout_;
  SharedMemory memory_;
};

}  // namespace motley
