#pragma once
// A program on ranks that needs no runner: it asks nothing, keeps nothing, and says its say.

#include <string>
#include <vector>

#include "core/plan.h"
#include "core/result.h"

namespace motley {

/// Runs motley-worker with these arguments once for each rank, on its host, until all have ended;
/// returns what rank 0 has written. Hosts are prepared and left as by a runner. The error is the
/// worker's own where it has one; kNoDevice after `limit`.
Result<std::string> run_ranks(const std::vector<RankPlacement>& ranks,
                              const std::vector<std::string>& arguments,
                              const std::string& rsh_agent, Nanos limit);

}  // namespace motley
