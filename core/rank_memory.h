#pragma once
// Host memory that a rank of a plan needs besides its engine's: for slices on their way between
// ranks, and for the copy of its state that a checkpoint is written from. Planner and worker count
// alike. What does not grow with the model is left out: tables, headers, chunks of files.

#include "core/ids.h"
#include "core/spec/job_spec.h"

namespace motley {

/// Of one gradient element: in exact it is 64-bit fixed point, truly that wide.
int gradient_element_bytes(Numerics numerics, int element_bytes);

/// Weights and both moments of what a rank owns.
Bytes snapshot_bytes(int64_t owned_elements, int element_bytes);

/// What one rank sends another at a time when `ranks` ranks exchange slices: a transfer of more
/// goes in messages of this size, so that what arrives from all at once is at most
/// kMostExchangeBytes, however large the model is. A multiple of 8.
Bytes exchange_message_bytes(int ranks);
inline constexpr Bytes kMostExchangeBytes{4 << 20};

/// Where `ranks` ranks hold all of the model each, what arrives at a rank that owns this many of
/// its elements, at a time. It sends from where its slices lie.
Bytes plain_exchange_bytes(int ranks, int64_t owned_elements, int gradient_bytes);

}  // namespace motley
