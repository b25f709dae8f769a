#pragma once
// Processes of this machine by an entry of the environment they were started with, which what they
// start inherits: whatever session or parent they have by now, and whoever started them.

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "core/ids.h"

namespace motley {

/// Those of this user with an entry that begins with `entry` ("NAME=value…"), by /proc; zombies are
/// none.
std::vector<pid_t> marked_processes(const std::string& entry);

/// What follows `entry` in those entries, of all of them.
std::set<std::string> marks(const std::string& entry);

/// SIGKILLs them until none is left or `limit` has passed; who is its parent reaps each:
/// whether none is left. Blocks.
bool kill_marked(const std::string& entry, Nanos limit);

}  // namespace motley
