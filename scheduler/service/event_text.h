#pragma once

#include <string>
#include <vector>

#include "scheduler/queue/job_fsm.h"

namespace motley {

/// What happened to a job, a line for people: "launching attempt 2 on a1/0, a1/1", "failed: …".
std::string event_text(const JobStatus& before, const JobStatus& after,
                       const std::vector<std::string>& devices, Nanos now);

/// "a1/0, a1/1"
std::string joined(const std::vector<std::string>& texts);

}  // namespace motley
