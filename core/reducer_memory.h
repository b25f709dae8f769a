#pragma once
// Host memory that performing a ReductionPlan takes: planner and worker count alike.

#include <cstddef>

#include "core/reduction.h"

namespace motley {

/// Memory that the ranks of an island share. Every member has so many slots for what it contributes
/// and as many for the totals it hands out.
struct IslandMemoryShape {
  int members = 0;
  int slots = 0;
  size_t slot_bytes = 0;  ///< none: nothing passes within the island

  static constexpr size_t kHeader = 64;  ///< before each slot's data: a cache line
  size_t slot_stride() const { return kHeader + (slot_bytes + kHeader - 1) / kHeader * kHeader; }
  size_t member_bytes() const {
    return slot_bytes == 0 ? 0 : 2 * static_cast<size_t>(slots) * slot_stride();
  }
  size_t total_bytes() const { return static_cast<size_t>(members) * member_bytes(); }
};

/// What one rank allocates.
struct ReducerMemory {
  size_t chunk = 0;          ///< bytes of the largest that it leads, encoded or not
  size_t for_each_led = 0;   ///< chunks
  IslandMemoryShape island;  ///< the same on all its ranks
  size_t residual = 0;       ///< bytes kept of what compression lost
  size_t scratch = 0;        ///< at most, of the codec

  size_t own_bytes() const { return kChunksLed * for_each_led * chunk; }
  /// With its part of the island's.
  Bytes total() const {
    return Bytes(static_cast<int64_t>(own_bytes() + island.member_bytes() + residual + scratch));
  }
};

ReducerMemory reducer_memory(const ReductionPlan& plan, const Islands& islands, int rank);

/// What a rank keeps of tensors that it sums as factors (comm/compression/power_sgd.h), besides
/// what the reducers of both take: residuals, factors, a row, and what was lost of a factor.
Bytes factor_bytes(const FactorElements& elements, const CodecSpec& codec);

/// Ranks that hold all elements of a model each, however they are spread over hosts.
struct PlainRanks {
  int count = 0;
  int hosts = 0;                ///< at most
  double round_trip_bytes = 0;  ///< of the links between these, at most
};

/// At most that of any of these ranks, which compress on all links if at all, as a codec of spans
/// does.
Bytes plain_reducer_bytes(int64_t elements, int element_bytes, const PlainRanks& ranks,
                          const CodecSpec& codec = {});

}  // namespace motley
