#pragma once
// How long sums over ranks take, with their results checked.

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/compression.h"

namespace motley {

struct SumTimes {
  std::string level;  ///< "host", "across" or "world"
  int ranks = 0;
  Bytes bytes{0};
  double seconds = 0;  ///< median over repetitions of the slowest rank's
  int64_t errors =
      0;  ///< elements with another sum than they must have, over ranks and repetitions
};

struct SumBenchOptions {
  std::vector<int64_t> sizes;  ///< bytes of each sum
  int repetitions = 0;         ///< 0: as many as are worth their time
  std::string level;           ///< the only one; empty: all that there are
  /// On all links between hosts. What was summed and what was kept back then make up the sums.
  CodecSpec codec = {};
};

/// Sums of float32 as training performs them. Levels: "world", all ranks; and where there are
/// several hosts, one of them with several ranks, "host", the ranks of one, of all hosts at once,
/// and "across", one rank of each. `hosts` gives each rank's. Collective; all ranks get the same
/// rows, none of a single rank.
Result<std::vector<SumTimes>> bench_sums(Communicator& world, const std::vector<std::string>& hosts,
                                         const SumBenchOptions& options);

}  // namespace motley
