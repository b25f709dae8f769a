#pragma once
// What passes between the ranks of a plan at the end of a step, as runs of a rank's flat buffers.

#include <cstdint>
#include <vector>

#include "core/plan.h"
#include "worker/program/parameters.h"

namespace motley {

/// A run of elements of the flat buffers.
struct SliceRun {
  int64_t offset = 0;
  int64_t count = 0;
  int64_t at = 0;  ///< number of its first element among all that its owner owns
};

/// What passes between this rank and another, by the numbers that the owner gives its elements:
/// both know these, and all who hold an element agree on them.
struct SliceTransfer {
  int peer = 0;
  std::vector<SliceRun> runs;  ///< rising, none touches the next
  int64_t elements = 0;
};

/// The elements of an owner with numbers in [begin, end).
struct SliceRange {
  int64_t begin = 0;
  int64_t end = 0;
};

/// All of one rank, each list by rising peer.
struct SliceTransfers {
  /// Of a valid plan.
  SliceTransfers(const Plan& plan, const ModelSpec& model, Rank self);

  std::vector<SliceTransfer> to_owners, from_contributors;  ///< counted copies of gradients
  std::vector<SliceTransfer> to_holders, from_owners;       ///< what owners made of them
  std::vector<SliceRun> uncounted;  ///< owned, but copies of what another counts

  /// Memory for messages of at most `message` bytes, of elements up to `widest` bytes: of what
  /// cannot be sent from, or received to, where it lies.
  Bytes outgoing_bytes(Bytes message, int widest) const;
  Bytes incoming_bytes(Bytes message, int widest) const;
};

/// These, rising, joined across gaps that cost less than a copy of their own.
std::vector<ParameterRange> ranges_over(std::vector<SliceRun> runs);

/// Ranges of the flat buffers, rising, that an exchange reads or writes: of gradients, which are
/// distributed again unless state is sharded, and of weights that their owners distribute. Empty:
/// nothing of this rank passes to or from another.
std::vector<ParameterRange> gradient_ranges(const SliceTransfers& transfers, bool sharded);
std::vector<ParameterRange> weight_ranges(const SliceTransfers& transfers);

/// Both, as a SliceExchange of this rank allocates them.
Bytes slice_exchange_bytes(const Plan& plan, const ModelSpec& model, Rank self, int widest);

}  // namespace motley
