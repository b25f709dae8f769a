#pragma once
// Sums of arrays, in the order given.

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/sum_type.h"

namespace motley {

/// out[i] = terms[0][i] + terms[1][i] + …, from left to right; integers wrap. `out` may be one of
/// the terms.
void sum_elements(SumType type, std::byte* out, std::span<const std::byte* const> terms,
                  int64_t count);

}  // namespace motley
