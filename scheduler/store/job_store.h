#pragma once
// The coordinator's memory: jobs, their attempts, and what happened, in one SQLite file. Changes
// are functions of the writer's connection (group_commit.h), questions ask any other one. Times are
// of the wall clock, in nanoseconds since 1970, for people only: nothing is decided by them.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "scheduler/queue/job_fsm.h"
#include "scheduler/store/database.h"

namespace motley {

struct StoredJob {
  int64_t id = 0;
  std::string name;
  std::string owner;
  std::string queue;
  int priority = 50;
  std::string spec;  ///< job.json
  std::string key;   ///< of the submission: another one with it is the same job; empty: none
  int64_t submitted = 0;
  int64_t finished = 0;  ///< 0: not yet
  JobStatus status;      ///< not_before is how much longer it backs off
};

struct StoredEvent {
  int64_t id = 0;
  int64_t time = 0;
  int64_t job = 0;
  std::string text;
};

enum class JobFilter { kAll, kUnfinished, kFinished };

/// Makes the tables, or brings those of an older version up to date. kBrokenInstall where they are
/// of a newer one.
Result<Unit> migrate(const Database& database);

// Changes.

/// The number of the new job, or of the one that was submitted with the same key. kUsage where that
/// one was another job.
Result<int64_t> add_job(const Database& database, const StoredJob& job);
/// Only while it stands where `before` says. kNotPermitted: it does not any more.
Result<Unit> save_status(const Database& database, int64_t job, const JobStatus& before,
                         const JobStatus& after, int64_t now);
Result<Unit> add_event(const Database& database, int64_t job, int64_t now, std::string_view text);

// Questions.

Result<std::optional<StoredJob>> find_job(const Database& database, int64_t id);
/// The newest first, numbers below `before`, without their specs.
Result<std::vector<StoredJob>> list_jobs(const Database& database, JobFilter filter, int64_t before,
                                         int most);
/// All that are to be gone on with, by number.
Result<std::vector<StoredJob>> unfinished_jobs(const Database& database);
/// In their order, numbers above `after`; of one job or, with 0, of all.
Result<std::vector<StoredEvent>> list_events(const Database& database, int64_t job, int64_t after,
                                             int most);

}  // namespace motley
