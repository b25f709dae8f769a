#pragma once
// The coordinator's memory: jobs, their attempts, and what happened, in one SQLite file. Changes
// are functions of the writer's connection (group_commit.h), questions ask any other one. Times are
// of the wall clock, in nanoseconds since 1970, for people only: nothing is decided by them.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "scheduler/queue/job_fsm.h"
#include "scheduler/store/database.h"

namespace motley {

/// Where a job stands in an array.
struct ArrayPlace {
  int64_t first = 0;  ///< the number of its first job, by which it is known; 0: no array
  int index = 0;
  int size = 0;
};

struct StoredJob {
  int64_t id = 0;
  std::string name;
  std::string owner;
  std::string queue;
  int priority = 50;
  std::string spec;                           ///< job.json
  std::map<std::string, std::string> labels;  ///< to be added; not among what is read
  std::string key;  ///< of the submission: another one with it is the same job; empty: none
  int64_t submitted = 0;
  int64_t finished = 0;  ///< 0: not yet
  JobStatus status;      ///< not_before is how much longer it backs off
  ArrayPlace array;      ///< to be added: `first` follows from the number
};

struct StoredEvent {
  int64_t id = 0;
  int64_t time = 0;
  int64_t job = 0;  ///< 0: of a node, or of the service
  std::string text;
  std::string node;  ///< empty: of a job, or of the service
};

/// One try of a job.
struct StoredAttempt {
  int64_t job = 0;
  Epoch epoch{0};
  std::vector<std::string> devices = {};  ///< their ids, which hold no line break
  int64_t begun = 0;                      ///< when it was decided
  int64_t ended = 0;                      ///< 0: not yet
  Nanos took{0};                          ///< by a steady clock
  double worth = 0;                       ///< device-seconds, at what its devices were worth to it
  int64_t saved_step = 0;                 ///< of the job's newest checkpoint at its end
  std::string outcome = {};  ///< "done", "measured", "stopped", "failed"; empty: it has not ended
  std::string cause = {};    ///< of a failure
};

enum class JobFilter { kAll, kUnfinished, kFinished };

/// What jobs are asked for; what is empty admits all.
struct JobQuery {
  JobFilter which = JobFilter::kAll;
  std::optional<JobState> state = {};
  std::string name = {};
  std::string queue = {};
  std::string owner = {};
  std::string label = {};  ///< "name" or "name=value"
  int64_t array = 0;       ///< of this array
};

struct JobPage {
  std::vector<StoredJob> jobs;
  int64_t next = 0;  ///< where the next page begins (`before`); 0: there is none
};

/// Makes the tables, or brings those of an older version up to date. kBrokenInstall where they are
/// of a newer one.
Result<Unit> migrate(const Database& database);

// Changes.

/// One job, or those of an array, whose numbers follow each other: the number of the first, or of
/// the one that was submitted with its key. kUsage where that was another submission. `is_new` (may
/// be null) tells which.
Result<int64_t> add_jobs(const Database& database, const std::vector<StoredJob>& jobs,
                         bool* is_new = nullptr);
/// Its queue, priority, spec and labels are other ones from now on; a repeated key still asks for
/// what was submitted.
Result<Unit> save_spec(const Database& database, const StoredJob& job);
/// Only while it stands where `before` says. kNotPermitted: it does not any more.
Result<Unit> save_status(const Database& database, int64_t job, const JobStatus& before,
                         const JobStatus& after, int64_t now);
Result<Unit> add_event(const Database& database, int64_t job, int64_t now, std::string_view text);
Result<Unit> add_node_event(const Database& database, const std::string& node, int64_t now,
                            std::string_view text);
/// Of neither: of the service.
Result<Unit> add_service_event(const Database& database, int64_t now, std::string_view text);
Result<Unit> add_attempt(const Database& database, const StoredAttempt& attempt);
/// Only once; devices and begin stay. Its worth is its owner's usage from then on (usage_store.h).
Result<Unit> end_attempt(const Database& database, const StoredAttempt& attempt);
/// Jobs to come have greater numbers than this, too.
Result<Unit> number_jobs_above(const Database& database, int64_t id);
/// With its events and attempts, once it has ended; its number and its key are free of it.
/// kNotPermitted where it has not, kNotFound.
Result<Unit> remove_job(const Database& database, int64_t job);
/// Those before `time`, of the oldest `most`.
Result<Unit> remove_events(const Database& database, int64_t time, int most);
/// Fails where there is no room for a few changes.
Result<Unit> try_to_write(const Database& database);

// Questions.

/// Whether a job was submitted with it; never of an empty one.
Result<bool> key_is_known(const Database& database, const std::string& key);
/// kNotFound: there is no such job.
Result<StoredJob> find_job(const Database& database, int64_t id);
/// The newest first, numbers below `before`, without their specs. However many jobs there are it
/// looks at a bounded number of them: a page may be short, or empty, and have a next one.
Result<JobPage> list_jobs(const Database& database, const JobQuery& query, int64_t before,
                          int most);
/// Numbers of jobs that ended before `time`, the first to end first.
Result<std::vector<int64_t>> jobs_ended_before(const Database& database, int64_t time, int most);
/// Those that are to be gone on with and have greater numbers than `after`, by number, `most` of
/// them, whole.
Result<std::vector<StoredJob>> unfinished_jobs(const Database& database, int64_t after = 0,
                                               int most = INT32_MAX);
/// Of a job, by epoch.
Result<std::vector<StoredAttempt>> list_attempts(const Database& database, int64_t job);
/// Jobs there are in each state; reads them all.
Result<std::vector<std::pair<JobState, int64_t>>> count_jobs(const Database& database);
/// In their order, numbers above `after`; of one job or, with 0, of all.
Result<std::vector<StoredEvent>> list_events(const Database& database, int64_t job, int64_t after,
                                             int most);
/// The number before those of the newest `most`; 0: there are no more of them.
Result<int64_t> event_before_newest(const Database& database, int64_t job, int64_t most);

}  // namespace motley
