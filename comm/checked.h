#pragma once
// A communicator whose ranks tell each other what they call before they do: calls that differ end
// in an error that names them instead of hanging or mixing up what they exchange. For debugging:
// every collective becomes one exchange slower.

#include <memory>

#include "comm/communicator.h"

namespace motley {

/// Whether communicators are checked that were not told: in Debug builds, and with
/// MOTLEY_DEBUG=collectives.
bool collectives_are_checked();

/// `inner`, on every rank or on none. Where collectives of a group differ, the waiting for
/// reductions among them, each of its ranks gets the same kInternal: "rank 2 calls all_reduce_sum
/// of 40 float32 where rank 0 calls barrier". A message of another size than expected is kInternal
/// where it is received. A rank that calls nothing is kPeerLost as ever. Groups made of it are
/// checked; bytes_sent() counts what it would without the checks.
std::unique_ptr<Communicator> checked(std::unique_ptr<Communicator> inner);

}  // namespace motley
