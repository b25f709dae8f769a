#pragma once
// A process by more than its number, which the system gives to others in time.

#include <sys/types.h>

#include <optional>
#include <string>

#include "core/ids.h"
#include "scheduler/launch/child_process.h"

namespace motley {

struct ProcessIdentity {
  pid_t pid = 0;
  int64_t start_ticks = 0;  ///< since the machine was started
  std::string boot;         ///< of the machine, a name of its own each time it starts
  bool operator==(const ProcessIdentity&) const = default;
};

/// Nothing when there is no such process.
std::optional<ProcessIdentity> identity_of(pid_t pid);

/// A descriptor that is readable when the process has ended; not valid when it has gone already.
Fd watch_process(const ProcessIdentity& process);

/// How long it has been running, by a clock that nobody sets.
Nanos age_of(const ProcessIdentity& process);

}  // namespace motley
