#pragma once
// What runs of attempts on this machine, whoever started it and whatever became of their own
// processes: all of it has the attempt in its environment.

#include <set>
#include <string>

#include "scheduler/service/attempt_launcher.h"
#include "scheduler/service/service_directory.h"

namespace motley {

constexpr const char* kAttemptMark = "MOTLEY_SERVICE_ATTEMPT";

/// Its value, for what is started for the attempt.
std::string attempt_mark(const ServiceDirectory& directory, AttemptId id);

std::set<AttemptId> running_attempts(const ServiceDirectory& directory);
bool is_running(const ServiceDirectory& directory, AttemptId id);
/// SIGKILLs what there is of it; what that starts meanwhile is there afterwards.
void kill_running(const ServiceDirectory& directory, AttemptId id);

}  // namespace motley
