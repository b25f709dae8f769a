#pragma once
// Processes of this machine by descent, read from /proc.

#include <sys/types.h>

#include <set>
#include <vector>

#include "core/ids.h"

namespace motley {

/// Everything that descends from `ancestor`, itself not included, zombies included.
std::vector<pid_t> descendants_of(pid_t ancestor);

/// From now on orphans among our descendants become our children, so that descendants_of() sees
/// them whatever session they put themselves in.
void become_subreaper();

/// SIGKILLs all our descendants but `spared` and reaps those that are our children, until none is
/// left or `limit` has passed; returns what is left.
std::vector<pid_t> kill_descendants(const std::set<pid_t>& spared, Nanos limit);

}  // namespace motley
