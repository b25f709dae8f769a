#pragma once

#include <string>
#include <vector>

#include "core/spec/job_spec.h"
#include "scheduler/queue/job_fsm.h"
#include "scheduler/store/speed_store.h"

namespace motley {

/// " by eva"; empty where nobody is known to have done it.
std::string by_whom(const std::string& who);
/// ", asked by eva"; empty where nobody is known to have asked.
std::string asked_by(const std::string& who);

/// What happened to a job, a line for people: "launching attempt 2 on a1/0, a1/1", "failed: …".
/// `by`: who asked for it.
std::string event_text(const JobStatus& before, const JobStatus& after,
                       const std::vector<std::string>& devices, Nanos now, const std::string& by);

/// "measured: slow-card 10.2 samples/s, fast-card cannot train it"
std::string measured_text(const std::vector<StoredSpeed>& speeds);

/// What is other in a job that was updated: "updated by eva: priority 50 → 70, queue default →
/// night"; empty: nothing.
std::string update_text(const JobSpec& before, const JobSpec& after, const std::string& by);

/// Of a job that another comes after: "job 7, which it comes after, has failed"; empty: it has not.
std::string why_not_after(int64_t job, JobState state);

/// "a1/0, a1/1"
std::string joined(const std::vector<std::string>& texts);

}  // namespace motley
