#pragma once
// Which totals can be dealt when devices cannot compute just any number of grains in time.

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/plain/deal.h"

namespace motley {

/// All grains over `n` devices, each within `limit`; nothing when there is no such deal. Enumerates
/// the reachable (devices used, total) pairs, device by device.
std::optional<Deal> deal_by_sums(const DealProblem& problem, int n, double limit);

/// Bytes deal_by_sums takes for `n` devices used.
int64_t deal_by_sums_bytes(const DealProblem& problem, int n);

}  // namespace motley
