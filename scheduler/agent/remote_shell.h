#pragma once

#include <string>

#include "core/result.h"

namespace motley {

/// What mpirun and others of an attempt use instead of ssh: runs `command` on `host` through its
/// agent, with our input, to our output, and gives its exit status; 255 where it could not be run
/// or the node is lost. The attempt is that of $MOTLEY_ATTEMPT; where it has no agent on that host,
/// this process becomes ssh.
Result<int> run_on_node(const std::string& host, const std::string& command);

}  // namespace motley
