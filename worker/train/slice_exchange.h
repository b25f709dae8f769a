#pragma once
// Keeps the copies of every slice equal, however each replica is cut. Each slice has one owner
// (core/plan.h):
//
//   reduce       every counted copy of a gradient goes to its owner, who adds them up
//   distribute   the owner's result goes to all who hold the slice
//
// reduce then distribute is an all-reduce over whoever holds a slice; with the update of owned
// slices in between it is a reduce-scatter and an all-gather (sharded optimizer state). Of n
// replicas with even owners each rank sends and receives 2·(n-1)/n of what it holds.
//
// Both go in rounds, in each of which a pair of ranks exchanges one message at most
// (core/rank_memory.h): no rank holds more than that of the others' copies at a time. A round is a
// range of each owner's elements, so that all copies of an element arrive in the same one. A rank
// waits in a round for nobody who is not in the same or a later one: rounds cannot lock up, however
// many each rank takes part in. What a round needs of a device with memory of its own gets under
// way to the host a round before, and what it has made goes back during the next one (StagedView).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/plan.h"
#include "worker/engine/engine.h"
#include "worker/engine/memory_account.h"
#include "worker/train/slice_transfers.h"

namespace motley {

class SliceExchange {
 public:
  /// For this rank of a valid plan. `world` has the plan's ranks; it and `account` outlive this.
  /// Finds all transfers and allocates what they need; of what is exchanged no element has more
  /// than `widest` bytes.
  SliceExchange(const Plan& plan, const ModelSpec& model, Communicator& world, int widest,
                MemoryAccount& account);

  /// Whether reduce() and distribute() look at any of the gradients.
  bool exchanges_gradients(bool sharded) const {
    return !gradient_ranges(transfers_, sharded).empty();
  }
  bool exchanges_weights() const { return !weight_ranges(transfers_).empty(); }

  /// Collective. Afterwards owned slices hold the sum over all counted copies, in the order own,
  /// then rising rank; the rest is undefined until distribute().
  Result<Unit> reduce(const GradientSpans& gradients);
  /// Collective. Copies owned slices to the other holders.
  Result<Unit> distribute(const GradientSpans& gradients);
  /// The same for weights: elements of `element_bytes` each.
  Result<Unit> distribute(std::span<std::byte> flat, int element_bytes);

 private:
  struct Flat {
    std::span<std::byte> bytes;
    int element_bytes;
    StagedView* staged = nullptr;

    std::byte* at(int64_t element) const { return bytes.data() + element * element_bytes; }
  };
  using Arrived = std::function<void(const SliceTransfer&, SliceRange, const std::byte* data)>;

  template <class T>
  Result<Unit> reduce_all(std::span<T> flat, StagedView* staged);
  Result<Unit> distribute(const Flat& flat);
  Result<Unit> move(const Flat& flat, const std::vector<SliceTransfer>& outgoing,
                    const std::vector<SliceTransfer>& incoming, bool in_place,
                    const Arrived& arrived, const std::string& operation);
  void offer(const Flat& flat, const std::vector<SliceTransfer>& transfers, SliceRange round);
  void expect(const Flat& flat, const std::vector<SliceTransfer>& transfers, SliceRange round,
              bool in_place);

  Communicator& world_;
  const SliceTransfers transfers_;
  const Bytes message_;
  CountedMemory outgoing_, incoming_;
  std::vector<Incoming> receives_;
  std::vector<Outgoing> sends_;
};

}  // namespace motley
