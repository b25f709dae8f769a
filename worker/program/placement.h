#pragma once
#include <vector>

#include "core/ids.h"
#include "worker/program/program.h"

namespace motley {

inline constexpr int64_t kSymbolAlignment = 64;

/// Gives every symbol of `segment` that is used an offset, a multiple of kSymbolAlignment, so that
/// two alive at the same instruction never overlap; returns the bytes of the segment. Largest
/// first, each into the smallest gap that holds it: for the saved-then-consumed buffers of forward
/// and backward passes this comes close to the most that is alive at once.
Bytes place_symbols(std::vector<Symbol>& symbols, Segment segment);

}  // namespace motley
