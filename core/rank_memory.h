#pragma once
// Host memory that a rank of a plan needs besides its engine's: for slices on their way between
// ranks, and for the copy of its state that a checkpoint is written from. Planner and worker count
// alike. What does not grow with the model is left out: tables, headers, chunks of files.

#include "core/ids.h"
#include "core/spec/job_spec.h"

namespace motley {

/// Of one gradient element: in exact it is 64-bit fixed point, truly that wide.
int gradient_element_bytes(Numerics numerics, int element_bytes);

/// Weights and both moments of what a rank owns, and what compressed gradients have lost of it.
Bytes snapshot_bytes(int64_t owned_elements, int element_bytes, bool compresses);

}  // namespace motley
