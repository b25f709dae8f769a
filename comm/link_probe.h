#pragma once
// Latency and bandwidth between the hosts of a group, by ping-pong between one rank of each.

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/profile.h"

namespace motley {

/// One entry for every pair of hosts, and one for every host with at least two ranks; `hosts` gives
/// each rank's. Latency is half the fastest round trip of 8 bytes, bandwidth comes from the fastest
/// round trip of a large message; LinkProfile::kFree when it took no time, as on a virtual clock.
/// `now` is the caller's clock in seconds. Pairs are probed one
/// after another, so that they do not disturb each other; a few milliseconds each on a local
/// network. All ranks call; all get the same answer.
Result<std::vector<LinkProfile>> probe_links(Communicator& comm,
                                             const std::vector<std::string>& hosts,
                                             const std::function<double()>& now);

}  // namespace motley
