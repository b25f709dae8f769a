#pragma once
// What host and programs tell each other: tokens and targets in; losses and flags out; activations
// and their gradients between neighbouring stages.

#include <array>
#include <deque>
#include <memory>
#include <vector>

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
  /// kInvalidSpec for a token outside the vocabulary. Where the device has memory of its own they
  /// reach it beside what it computes, and the slot in the order of the stream; waits only for the
  /// samples before the last ones to have reached it.
  Result<Unit> put_samples(int slot, const MicroBatchInput& input);

  /// The first `samples` samples of what goes to or came from a neighbouring stage.
  Result<std::span<std::byte>> pull(int slot, Boundary boundary, int samples);
  /// What host code put into a boundary's view reaches the device. The stream takes it from there.
  Result<Unit> push(int slot, Boundary boundary, int samples);
  /// The view that push() takes it from; waits until the last one was taken.
  std::span<std::byte> view(int slot, Boundary boundary, int samples);

  /// Clears the overflow flag and the sums.
  void clear();
  /// What programs enqueued from here on read: CrossEntropyArgs::scale and
  /// AccumulateFixedArgs::exponent.
  void put_scales(double loss_scale, int exponent);
  /// Before a program runs in `slot`: what the last one left there has been taken. Waits for that
  /// program alone, not for what was enqueued after it.
  Result<Unit> make_room(int slot);
  /// Counts the losses of the first `samples` samples of the program that was just enqueued in
  /// `slot`, if the stage has them.
  Result<Unit> add_losses(int slot, int samples);
  Address overflow_flag() const { return Address::of(common() + layout_.overflow.value()); }
  /// Since clear(): losses in the order of the programs, and the flag. Waits for the device.
  Result<LossSums> sums();

 private:
  /// Where samples arrive while the stream still computes with those in the slot.
  struct Landing {
    Bytes offset{0};
    std::unique_ptr<StreamMark> arrived;  ///< behind the copy from the host
    std::unique_ptr<StreamMark> taken;    ///< behind the copy into the slot
  };
  /// The losses of a program, on their way to the host.
  struct Due {
    int slot = 0;
    int samples = 0;
  };

  Exchange(Device& device, const StageSpec& stage, const ExchangeLayout& layout);
  Result<Unit> check_tokens(std::span<const int32_t> tokens) const;
  void fill(Bytes base, const MicroBatchInput& input);
  Bytes place(int slot, Boundary boundary) const;
  Bytes boundary_bytes(int samples) const;
  Bytes losses_bytes(int samples) const;
  void take_losses(const Due& due);

  Device* device_;
  StageSpec stage_;
  ExchangeLayout layout_;
  SharedMemory memory_;
  std::unique_ptr<StreamMark> scales_put_;
  std::array<Landing, 2> landings_;
  size_t next_landing_ = 0;
  std::vector<std::unique_ptr<StreamMark>> pushed_;  ///< [slot]: behind what the host put there
  std::vector<std::unique_ptr<StreamMark>> losses_;  ///< [slot]: behind the copy of its losses
  std::deque<Due> due_;
  LossSums sums_;
};

}  // namespace motley
