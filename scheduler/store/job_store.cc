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
)sql",
                                    R"sql(
CREATE TABLE attempts (
  job INTEGER NOT NULL REFERENCES jobs (id),
  epoch INTEGER NOT NULL,
  devices TEXT NOT NULL,
  begun INTEGER NOT NULL,
  ended INTEGER NOT NULL,
  took INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  cause TEXT NOT NULL,
  PRIMARY KEY (job, epoch)
) STRICT, WITHOUT ROWID;
)sql",
                                    R"sql(
CREATE TABLE tokens (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  user TEXT NOT NULL,
  role TEXT NOT NULL,
  label TEXT NOT NULL,
  hash TEXT NOT NULL,
  created INTEGER NOT NULL,
  expires INTEGER NOT NULL,
  revoked INTEGER NOT NULL
) STRICT;
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

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for (size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

/// The number of the job that was submitted with this key; 0: none was.
Result<int64_t> id_of_key(const Database& database, const std::string& key) {
  if (key.empty()) return 0;
  MOTLEY_TRY(Statement known, database.prepare("SELECT id FROM jobs WHERE key = ?"));
  known.bind(std::string_view(key));
  MOTLEY_TRY(const bool found, known.step());
  return found ? known.integer(0) : 0;
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

Result<int64_t> add_job(const Database& database, const StoredJob& job, bool* is_new) {
  if (is_new != nullptr) *is_new = false;
  MOTLEY_TRY(const int64_t known_id, id_of_key(database, job.key));
  if (known_id != 0) {
    MOTLEY_TRY(const std::optional<StoredJob> known, find_job(database, known_id));
    if (known->spec == job.spec) return known_id;
    return fail(ErrorCode::kUsage, "job " + std::to_string(known_id) +
                                       " was submitted with the same key and is another one");
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
  if (is_new != nullptr) *is_new = true;
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

Result<bool> key_is_known(const Database& database, const std::string& key) {
  MOTLEY_TRY(const int64_t id, id_of_key(database, key));
  return id != 0;
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

Result<Unit> add_attempt(const Database& database, const StoredAttempt& attempt) {
  MOTLEY_TRY(Statement insert,
             database.prepare("INSERT INTO attempts (job, epoch, devices, begun, ended, took, "
                              "outcome, cause) VALUES (?, ?, ?, ?, 0, 0, '', '')"));
  std::string devices;
  for (const std::string& device : attempt.devices) devices += device + "\n";
  insert.bind(attempt.job)
      .bind(int64_t{attempt.epoch.value()})
      .bind(std::string_view(devices))
      .bind(attempt.begun);
  return insert.run();
}

Result<Unit> end_attempt(const Database& database, const StoredAttempt& attempt) {
  MOTLEY_TRY(Statement update,
             database.prepare("UPDATE attempts SET ended = ?, took = ?, outcome = ?, cause = ? "
                              "WHERE job = ? AND epoch = ? AND ended = 0"));
  update.bind(attempt.ended)
      .bind(attempt.took.value())
      .bind(std::string_view(attempt.outcome))
      .bind(std::string_view(attempt.cause))
      .bind(attempt.job)
      .bind(int64_t{attempt.epoch.value()});
  return update.run();
}

Result<std::vector<StoredAttempt>> list_attempts(const Database& database, int64_t job) {
  MOTLEY_TRY(Statement asked,
             database.prepare("SELECT epoch, devices, begun, ended, took, outcome, cause "
                              "FROM attempts WHERE job = ? ORDER BY epoch"));
  asked.bind(job);
  std::vector<StoredAttempt> attempts;
  while (true) {
    MOTLEY_TRY(const bool found, asked.step());
    if (!found) return attempts;
    attempts.push_back({.job = job,
                        .epoch = Epoch(static_cast<int>(asked.integer(0))),
                        .devices = lines_of(asked.text(1)),
                        .begun = asked.integer(2),
                        .ended = asked.integer(3),
                        .took = Nanos(asked.integer(4)),
                        .outcome = asked.text(5),
                        .cause = asked.text(6)});
  }
}

Result<std::vector<std::pair<JobState, int64_t>>> count_jobs(const Database& database) {
  MOTLEY_TRY(Statement asked, database.prepare("SELECT state, count(*) FROM jobs GROUP BY state"));
  std::vector<std::pair<JobState, int64_t>> counts;
  while (true) {
    MOTLEY_TRY(const bool found, asked.step());
    if (!found) return counts;
    counts.emplace_back(static_cast<JobState>(asked.integer(0)), asked.integer(1));
  }
}

Result<std::vector<StoredJob>> list_jobs(const Database& database, JobFilter filter, int64_t before,
                                         int most) {
  JobQuery query;
  query.which = filter;
  return list_jobs(database, query, before, most);
}

Result<std::vector<StoredJob>> list_jobs(const Database& database, const JobQuery& query,
                                         int64_t before, int most) {
  const size_t equals = query.label.find('=');
  std::string which = query.which == JobFilter::kAll          ? ""
                      : query.which == JobFilter::kUnfinished ? "finished = 0 AND "
                                                              : "finished > 0 AND ";
  if (query.state) which += "state = ? AND ";
  if (!query.name.empty()) which += "name = ? AND ";
  if (!query.queue.empty()) which += "queue = ? AND ";
  if (!query.label.empty())
    which += equals == std::string::npos ? "json_extract(spec, ?) IS NOT NULL AND "
                                         : "json_extract(spec, ?) = ? AND ";
  MOTLEY_TRY(Statement asked,
             database.prepare(std::string("SELECT ") + kColumns + " FROM jobs WHERE " + which +
                              "id < ? ORDER BY id DESC LIMIT ?"));
  if (query.state) asked.bind(static_cast<int64_t>(*query.state));
  if (!query.name.empty()) asked.bind(std::string_view(query.name));
  if (!query.queue.empty()) asked.bind(std::string_view(query.queue));
  if (!query.label.empty())
    asked.bind(std::string_view("$.service.labels.\"" + query.label.substr(0, equals) + "\""));
  if (equals != std::string::npos) asked.bind(std::string_view(query.label).substr(equals + 1));
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
