#include "scheduler/store/job_store.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace motley {
namespace {

/// Each brings the tables from the version of its place to the next one.
constexpr std::array kMigrations = {R"sql(
CREATE TABLE jobs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  owner TEXT NOT NULL,
  queue TEXT NOT NULL,
  priority INTEGER NOT NULL,
  spec TEXT NOT NULL,
  key TEXT UNIQUE,
  submitted INTEGER NOT NULL,
  finished INTEGER NOT NULL,
  state INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  stop INTEGER NOT NULL,
  held INTEGER NOT NULL,
  unfinished INTEGER NOT NULL,
  restarts INTEGER NOT NULL,
  in_vain INTEGER NOT NULL,
  back_off INTEGER NOT NULL,
  cause TEXT NOT NULL
) STRICT;
CREATE INDEX jobs_unfinished ON jobs (id) WHERE finished = 0;
CREATE INDEX jobs_finished ON jobs (id) WHERE finished > 0;
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  time INTEGER NOT NULL,
  job INTEGER NOT NULL REFERENCES jobs (id),
  text TEXT NOT NULL
) STRICT;
CREATE INDEX events_of_job ON events (job, id);
)sql"};
constexpr auto kVersion = static_cast<int64_t>(kMigrations.size());

constexpr const char* kColumns =
    "id, name, owner, queue, priority, submitted, finished, state, epoch, stop, held, unfinished, "
    "restarts, in_vain, back_off, cause";
constexpr int kColumnCount = 16;

StoredJob job_at(const Statement& row) {
  StoredJob job;
  job.id = row.integer(0);
  job.name = row.text(1);
  job.owner = row.text(2);
  job.queue = row.text(3);
  job.priority = static_cast<int>(row.integer(4));
  job.submitted = row.integer(5);
  job.finished = row.integer(6);
  JobStatus& status = job.status;
  status.state = static_cast<JobState>(row.integer(7));
  status.epoch = Epoch(static_cast<int>(row.integer(8)));
  status.stop = static_cast<StopWhy>(row.integer(9));
  status.held = row.integer(10) != 0;
  status.unfinished = static_cast<int>(row.integer(11));
  status.restarts = static_cast<int>(row.integer(12));
  status.in_vain = static_cast<int>(row.integer(13));
  status.not_before = Nanos(row.integer(14));
  status.cause = row.text(15);
  return job;
}

void bind_status(const JobStatus& status, Statement* statement) {
  statement->bind(static_cast<int64_t>(status.state))
      .bind(int64_t{status.epoch.value()})
      .bind(static_cast<int64_t>(status.stop))
      .bind(int64_t{status.held ? 1 : 0})
      .bind(int64_t{status.unfinished})
      .bind(int64_t{status.restarts})
      .bind(int64_t{status.in_vain})
      .bind(status.not_before.value())
      .bind(std::string_view(status.cause));
}

Result<std::vector<StoredJob>> all_jobs(Statement* statement) {
  std::vector<StoredJob> jobs;
  while (true) {
    MOTLEY_TRY(const bool found, statement->step());
    if (!found) return jobs;
    jobs.push_back(job_at(*statement));
  }
}

/// The job that was submitted with this key, if any.
Result<std::optional<StoredJob>> job_of_key(const Database& database, const std::string& key) {
  MOTLEY_TRY(Statement known, database.prepare("SELECT id FROM jobs WHERE key = ?"));
  known.bind(std::string_view(key));
  MOTLEY_TRY(const bool found, known.step());
  return found ? find_job(database, known.integer(0)) : std::optional<StoredJob>();
}

}  // namespace

Result<Unit> migrate(const Database& database) {
  MOTLEY_TRY(Statement asked, database.prepare("PRAGMA user_version"));
  MOTLEY_TRY_VOID(asked.step());
  const int64_t version = asked.integer(0);
  asked.reset();
  if (version > kVersion)
    return fail(ErrorCode::kBrokenInstall, "the database was made by a newer Motley (its version " +
                                               std::to_string(version) + ", this one knows " +
                                               std::to_string(kVersion) + ")");
  for (int64_t next = version; next < kVersion; ++next) {
    MOTLEY_TRY_VOID(database.execute("BEGIN IMMEDIATE"));
    const auto done =
        database.execute(std::string(kMigrations[static_cast<size_t>(next)]) +
                         "PRAGMA user_version = " + std::to_string(next + 1) + "; COMMIT");
    if (!done) {
      (void)database.execute("ROLLBACK");
      return done;
    }
  }
  return Unit{};
}

Result<int64_t> add_job(const Database& database, const StoredJob& job) {
  if (!job.key.empty()) {
    MOTLEY_TRY(const std::optional<StoredJob> known, job_of_key(database, job.key));
    if (known && known->spec != job.spec)
      return fail(ErrorCode::kUsage, "job " + std::to_string(known->id) +
                                         " was submitted with the same key and is another one");
    if (known) return known->id;
  }
  MOTLEY_TRY(
      Statement insert,
      database.prepare("INSERT INTO jobs (name, owner, queue, priority, spec, key, "
                       "submitted, finished, state, epoch, stop, held, unfinished, restarts, "
                       "in_vain, back_off, cause) "
                       "VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  insert.bind(std::string_view(job.name))
      .bind(std::string_view(job.owner))
      .bind(std::string_view(job.queue))
      .bind(int64_t{job.priority})
      .bind(std::string_view(job.spec))
      .bind(job.key.empty() ? std::nullopt : std::optional(job.key))
      .bind(job.submitted);
  bind_status(job.status, &insert);
  MOTLEY_TRY_VOID(insert.run());
  return database.last_id();
}

Result<Unit> save_status(const Database& database, int64_t job, const JobStatus& before,
                         const JobStatus& after, int64_t now) {
  MOTLEY_TRY(Statement update,
             database.prepare("UPDATE jobs SET state = ?, epoch = ?, stop = ?, held = ?, "
                              "unfinished = ?, restarts = ?, in_vain = ?, back_off = ?, cause = ?, "
                              "finished = ? WHERE id = ? AND state = ? AND epoch = ?"));
  bind_status(after, &update);
  update.bind(is_final(after.state) ? now : int64_t{0})
      .bind(job)
      .bind(static_cast<int64_t>(before.state))
      .bind(int64_t{before.epoch.value()});
  MOTLEY_TRY_VOID(update.run());
  if (database.changes() == 1) return Unit{};
  return fail(ErrorCode::kNotPermitted, "job " + std::to_string(job) + " is no longer " +
                                            name_of(before.state) + " in attempt " +
                                            std::to_string(before.epoch.value()));
}

Result<Unit> add_event(const Database& database, int64_t job, int64_t now, std::string_view text) {
  MOTLEY_TRY(Statement insert,
             database.prepare("INSERT INTO events (time, job, text) VALUES (?, ?, ?)"));
  insert.bind(now).bind(job).bind(text);
  return insert.run();
}

Result<std::optional<StoredJob>> find_job(const Database& database, int64_t id) {
  MOTLEY_TRY(Statement asked, database.prepare(std::string("SELECT ") + kColumns +
                                               ", spec, key FROM jobs WHERE id = ?"));
  asked.bind(id);
  MOTLEY_TRY(const bool found, asked.step());
  if (!found) return std::optional<StoredJob>();
  StoredJob job = job_at(asked);
  job.spec = asked.text(kColumnCount);
  job.key = asked.text(kColumnCount + 1);
  return std::optional(std::move(job));
}

Result<std::vector<StoredJob>> list_jobs(const Database& database, JobFilter filter, int64_t before,
                                         int most) {
  const std::string which = filter == JobFilter::kAll          ? ""
                            : filter == JobFilter::kUnfinished ? "finished = 0 AND "
                                                               : "finished > 0 AND ";
  MOTLEY_TRY(Statement asked,
             database.prepare(std::string("SELECT ") + kColumns + " FROM jobs WHERE " + which +
                              "id < ? ORDER BY id DESC LIMIT ?"));
  asked.bind(before).bind(int64_t{most});
  return all_jobs(&asked);
}

Result<std::vector<StoredJob>> unfinished_jobs(const Database& database) {
  MOTLEY_TRY(auto jobs,
             list_jobs(database, JobFilter::kUnfinished, std::numeric_limits<int64_t>::max(),
                       std::numeric_limits<int>::max()));
  std::reverse(jobs.begin(), jobs.end());
  return jobs;
}

Result<std::vector<StoredEvent>> list_events(const Database& database, int64_t job, int64_t after,
                                             int most) {
  const std::string which = job == 0 ? "" : "job = ? AND ";
  MOTLEY_TRY(Statement asked, database.prepare("SELECT id, time, job, text FROM events WHERE " +
                                               which + "id > ? ORDER BY id LIMIT ?"));
  if (job != 0) asked.bind(job);
  asked.bind(after).bind(int64_t{most});
  std::vector<StoredEvent> events;
  while (true) {
    MOTLEY_TRY(const bool found, asked.step());
    if (!found) return events;
    events.push_back({asked.integer(0), asked.integer(1), asked.integer(2), asked.text(3)});
  }
}

}  // namespace motley
