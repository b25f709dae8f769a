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

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/plan.h"
#include "worker/engine/engine.h"

namespace motley {

class SliceExchange {
 public:
  /// For this rank of a valid plan. `world` has the plan's ranks and outlives this. Finds all
  /// transfers and allocates what they need.
  SliceExchange(const Plan& plan, const ModelSpec& model, Communicator& world);

  /// Collective. Afterwards owned slices hold the sum over all counted copies, in the order own,
  /// then rising rank; the rest is undefined until distribute().
  Result<Unit> reduce(const GradientSpans& gradients);
  /// Collective. Copies owned slices to the other holders.
  Result<Unit> distribute(const GradientSpans& gradients);
  /// The same for weights: elements of `element_bytes` each.
  Result<Unit> distribute(std::span<std::byte> flat, int element_bytes);

 private:
  /// A run of elements of the flat buffers.
  struct Run {
    int64_t offset = 0;
    int64_t count = 0;
  };
  /// What passes between this rank and another, as runs of this rank's buffer in an order both
  /// know.
  struct Transfer {
    int peer = 0;
    std::vector<Run> runs;
    int64_t elements = 0;

    void add(int64_t offset, int64_t count);
  };
  class ByPeer;

  template <class T>
  Result<Unit> reduce_all(std::span<T> flat);
  Result<Unit> move(std::span<std::byte> flat, int element_bytes,
                    const std::vector<Transfer>& outgoing, const std::vector<Transfer>& incoming,
                    bool in_place, const std::string& operation);
  void pack(std::span<const std::byte> flat, int element_bytes, const Transfer& transfer,
            std::byte* to) const;
  void unpack(std::span<std::byte> flat, int element_bytes, const Transfer& transfer,
              const std::byte* from) const;

  Communicator& world_;
  std::vector<Transfer> to_owners_, from_contributors_;  // reduce
  std::vector<Transfer> to_holders_, from_owners_;       // distribute
  std::vector<Run> uncounted_;                           // owned, but copies of what another counts
  std::vector<std::byte> outgoing_, incoming_;
  std::vector<Incoming> receives_;
  std::vector<Outgoing> sends_;
};

}  // namespace motley
