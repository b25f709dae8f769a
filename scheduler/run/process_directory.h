#pragma once
// Directories that belong to one process while it fills them: their names say to which, so that
// what a killed one left is told from what is in use.

#include <sys/types.h>

#include <string>

namespace motley {

/// ".new-<host>-<pid>" of this process.
std::string draft_name();

/// Removes from `directory` the drafts of processes of this host that are gone. One that cannot be
/// removed stays.
void sweep_drafts(const std::string& directory);

bool is_alive(pid_t pid);  ///< some process has this number; false for 0

}  // namespace motley
