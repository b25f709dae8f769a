#pragma once
// What host and programs tell each other: tokens and targets in; losses and flags out; activations
// and their gradients between neighbouring stages.

#include "worker/engine/engine.h"
#include "worker/engine/shared_memory.h"
#include "worker/engine/stage.h"

namespace motley {

class Exchange {
 public:
  static Result<Exchange> allocate(Device& device, const StageSpec& stage,
                                   const ExchangeLayout& layout, MemoryAccount& account);

  Bytes size() const { return memory_.size(); }  ///< of all that is allocated
  std::byte* common() const { return memory_.device(); }
  std::byte* slot(int number) const { return memory_.device() + layout_.slot(number).value(); }

  /// What the stage needs of a micro-batch; a program of more samples reads token 0 beyond them.
  /// kInvalidSpec for a token outside the vocabulary.
  Result<Unit> put_samples(int slot, const MicroBatchInput& input);

  /// The first `samples` samples of what goes to or came from a neighbouring stage.
  Result<std::span<std::byte>> pull(int slot, Boundary boundary, int samples);
  /// What host code put into a boundary's view reaches the device.
  Result<Unit> push(int slot, Boundary boundary, int samples);
  /// The view that push() takes it from.
  std::span<std::byte> view(int slot, Boundary boundary, int samples);

  /// Clears the overflow flag.
  void clear(Device& device);
  /// Adds the losses of the first `samples` samples of the program that just ran in `slot`, if the
  /// stage has them.
  Result<Unit> add_losses(int slot, int samples, LossSums* sums);
  Address overflow_flag() const { return Address::of(common() + layout_.overflow.value()); }
  /// The flag since clear().
  Result<int64_t> overflow();

 private:
  explicit Exchange(const StageSpec& stage, const ExchangeLayout& layout)
      : stage_(stage), layout_(layout) {}
  Result<Unit> check_tokens(std::span<const int32_t> tokens) const;
  Bytes place(int slot, Boundary boundary) const;
  Bytes boundary_bytes(int samples) const;

  StageSpec stage_;
  ExchangeLayout layout_;
  SharedMemory memory_;
};

}  // namespace motley
