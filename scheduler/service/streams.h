#pragma once
// Responses that go on: events, and the log of a job.

#include <memory>

#include "scheduler/service/http_message.h"
#include "scheduler/service/job_log.h"

namespace motley {

/// Those with numbers above `after`, of one job or, with 0, of all. Ends when the one job has
/// ended and all is told.
std::shared_ptr<EventSource> follow_events(const Database& kept, int64_t job, int64_t after);

/// As read_job_log(), to the end of the job or, with `only`, of the attempt.
std::shared_ptr<EventSource> follow_log(const Database& kept, const ServiceDirectory& directory,
                                        LogChoice choice, LogPlace place);

}  // namespace motley
