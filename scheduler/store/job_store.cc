#include "scheduler/store/job_store.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "scheduler/store/usage_store.h"

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
)sql",
                                    R"sql(
CREATE INDEX jobs_by_state ON jobs (state, id);
CREATE INDEX jobs_by_name ON jobs (name, id);
CREATE INDEX jobs_by_queue ON jobs (queue, id);
CREATE INDEX jobs_by_end ON jobs (finished) WHERE finished > 0;
CREATE TABLE labels (
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  job INTEGER NOT NULL REFERENCES jobs (id),
  PRIMARY KEY (name, value, job)
) STRICT, WITHOUT ROWID;
CREATE INDEX labels_by_name ON labels (name, job);
CREATE INDEX labels_of_job ON labels (job);
INSERT INTO labels SELECT each.key, each.value, jobs.id
  FROM jobs, json_each(jobs.spec, '$.service.labels') each WHERE json_valid(jobs.spec);
CREATE TABLE room (filler BLOB NOT NULL) STRICT;
)sql",
                                    // Events are also of nodes.
                                    R"sql(
CREATE TABLE nodes (
  name TEXT PRIMARY KEY,
  session TEXT NOT NULL,
  fleet TEXT NOT NULL,
  labels TEXT NOT NULL,
  lost INTEGER NOT NULL,
  cause TEXT NOT NULL,
  draining INTEGER NOT NULL,
  reason TEXT NOT NULL,
  drain_left INTEGER NOT NULL,
  changed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE all_events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  time INTEGER NOT NULL,
  job INTEGER REFERENCES jobs (id),
  node TEXT,
  text TEXT NOT NULL
) STRICT;
INSERT INTO all_events SELECT id, time, job, NULL, text FROM events;
DROP TABLE events;
ALTER TABLE all_events RENAME TO events;
CREATE INDEX events_of_job ON events (job, id);
)sql",
                                    // A device of an attempt is a line of its text.
                                    R"sql(
ALTER TABLE jobs ADD COLUMN measuring INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN worth REAL NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN saved_step INTEGER NOT NULL DEFAULT 0;
UPDATE attempts SET
  worth = took * 1e-9 * (length(devices) - length(replace(devices, char(10), '')));
CREATE TABLE speeds (
  workload TEXT NOT NULL,
  traits TEXT NOT NULL,
  type TEXT NOT NULL,
  samples_per_second REAL NOT NULL,
  job INTEGER NOT NULL,
  name TEXT NOT NULL,
  measured INTEGER NOT NULL,
  PRIMARY KEY (workload, traits)
) STRICT, WITHOUT ROWID;
CREATE INDEX speeds_by_time ON speeds (measured);
)sql",
                                    R"sql(
ALTER TABLE tokens ADD COLUMN node TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN setbacks INTEGER NOT NULL DEFAULT 0;
)sql",
                                    // Arrays, and what a job was before it was updated.
                                    R"sql(
ALTER TABLE jobs ADD COLUMN array_first INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN array_index INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN array_size INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN submitted_spec TEXT;
CREATE INDEX jobs_by_array ON jobs (array_first, id) WHERE array_first > 0;
)sql",
                                    R"sql(
CREATE TABLE usage (
  owner TEXT PRIMARY KEY,
  worth REAL NOT NULL,
  at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO usage SELECT jobs.owner, sum(attempts.worth), max(attempts.ended)
  FROM attempts JOIN jobs ON jobs.id = attempts.job WHERE attempts.ended > 0 GROUP BY jobs.owner;
)sql",
                                    "CREATE INDEX jobs_by_owner ON jobs (owner, id);"};
constexpr auto kVersion = static_cast<int64_t>(kMigrations.size());

constexpr const char* kColumns =
    "jobs.id, jobs.name, owner, queue, priority, submitted, finished, state, epoch, stop, held, "
    "unfinished, restarts, in_vain, back_off, cause, measuring, setbacks, array_first, "
    "array_index, "
    "array_size";
constexpr int kColumnCount = 21;

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
  status.measuring = row.integer(16) != 0;
  status.setbacks = static_cast<int>(row.integer(17));
  job.array = {row.integer(18), static_cast<int>(row.integer(19)),
               static_cast<int>(row.integer(20))};
  return job;
}

/// With its spec and its key after the columns.
StoredJob whole_job_at(const Statement& row) {
  StoredJob job = job_at(row);
  job.spec = row.text(kColumnCount);
  job.key = row.text(kColumnCount + 1);
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
      .bind(std::string_view(status.cause))
      .bind(int64_t{status.measuring})
      .bind(int64_t{status.setbacks});
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

namespace {

Result<int64_t> insert_job(const Database& database, const StoredJob& job) {
  MOTLEY_TRY(
      Statement insert,
      database.prepare("INSERT INTO jobs (name, owner, queue, priority, spec, key, "
                       "submitted, finished, state, epoch, stop, held, unfinished, restarts, "
                       "in_vain, back_off, cause, measuring, setbacks, array_index, array_size) "
                       "VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  insert.bind(std::string_view(job.name))
      .bind(std::string_view(job.owner))
      .bind(std::string_view(job.queue))
      .bind(int64_t{job.priority})
      .bind(std::string_view(job.spec))
      .bind(job.key.empty() ? std::nullopt : std::optional(job.key))
      .bind(job.submitted);
  bind_status(job.status, &insert);
  insert.bind(int64_t{job.array.index}).bind(int64_t{job.array.size});
  MOTLEY_TRY_VOID(insert.run());
  return database.last_id();
}

Result<Unit> add_labels(const Database& database, const StoredJob& job) {
  if (job.labels.empty()) return Unit{};
  MOTLEY_TRY(Statement insert,
             database.prepare("INSERT INTO labels (name, value, job) VALUES (?, ?, ?)"));
  for (const auto& [name, value] : job.labels) {
    insert.bind(std::string_view(name)).bind(std::string_view(value)).bind(job.id);
    MOTLEY_TRY_VOID(insert.run());
    insert.reset();
  }
  return Unit{};
}

Result<Unit> set_first_of_array(const Database& database, int64_t first, int64_t size) {
  MOTLEY_TRY(Statement update,
             database.prepare("UPDATE jobs SET array_first = ? WHERE id >= ? AND id < ?"));
  update.bind(first).bind(first).bind(first + size);
  return update.run();
}

/// Whether these were submitted as that job, and those that followed it; some may be gone by now.
Result<bool> was_submitted_as(const Database& database, int64_t first,
                              const std::vector<StoredJob>& jobs) {
  MOTLEY_TRY(Statement asked,
             database.prepare("SELECT id, coalesce(submitted_spec, spec) FROM jobs "
                              "WHERE id = ? OR (array_first = ? AND array_first > 0)"));
  asked.bind(first).bind(first);
  while (true) {
    MOTLEY_TRY(const bool found, asked.step());
    if (!found) return true;
    const auto place = static_cast<size_t>(asked.integer(0) - first);
    if (place >= jobs.size() || asked.text(1) != jobs[place].spec) return false;
  }
}

}  // namespace

Result<int64_t> add_jobs(const Database& database, const std::vector<StoredJob>& jobs,
                         bool* is_new) {
  if (is_new != nullptr) *is_new = false;
  MOTLEY_TRY(const int64_t known, id_of_key(database, jobs.front().key));
  if (known != 0) {
    MOTLEY_TRY(const bool same, was_submitted_as(database, known, jobs));
    if (same) return known;
    return fail(ErrorCode::kUsage, "job " + std::to_string(known) +
                                       " was submitted with the same key and is another one");
  }
  int64_t first = 0;
  for (const StoredJob& job : jobs) {
    StoredJob added = job;
    MOTLEY_TRY(added.id, insert_job(database, job));
    MOTLEY_TRY_VOID(add_labels(database, added));
    if (first == 0) first = added.id;
  }
  if (jobs.front().array.size > 0)
    MOTLEY_TRY_VOID(set_first_of_array(database, first, std::ssize(jobs)));
  if (is_new != nullptr) *is_new = true;
  return first;
}

Result<Unit> save_spec(const Database& database, const StoredJob& job) {
  MOTLEY_TRY(Statement update,
             database.prepare("UPDATE jobs SET submitted_spec = coalesce(submitted_spec, spec), "
                              "spec = ?, queue = ?, priority = ? WHERE id = ?"));
  update.bind(std::string_view(job.spec))
      .bind(std::string_view(job.queue))
      .bind(int64_t{job.priority})
      .bind(job.id);
  MOTLEY_TRY_VOID(update.run());
  MOTLEY_TRY(Statement remove, database.prepare("DELETE FROM labels WHERE job = ?"));
  remove.bind(job.id);
  MOTLEY_TRY_VOID(remove.run());
  return add_labels(database, job);
}

Result<Unit> save_status(const Database& database, int64_t job, const JobStatus& before,
                         const JobStatus& after, int64_t now) {
  MOTLEY_TRY(
      Statement update,
      database.prepare(
          "UPDATE jobs SET state = ?, epoch = ?, stop = ?, held = ?, "
          "unfinished = ?, restarts = ?, in_vain = ?, back_off = ?, cause = ?, "
          "measuring = ?, setbacks = ?, finished = ? WHERE id = ? AND state = ? AND epoch = ?"));
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

Result<Unit> add_node_event(const Database& database, const std::string& node, int64_t now,
                            std::string_view text) {
  MOTLEY_TRY(Statement insert,
             database.prepare("INSERT INTO events (time, node, text) VALUES (?, ?, ?)"));
  insert.bind(now).bind(std::string_view(node)).bind(text);
  return insert.run();
}

Result<Unit> add_service_event(const Database& database, int64_t now, std::string_view text) {
  MOTLEY_TRY(Statement insert, database.prepare("INSERT INTO events (time, text) VALUES (?, ?)"));
  insert.bind(now).bind(text);
  return insert.run();
}

Result<bool> key_is_known(const Database& database, const std::string& key) {
  MOTLEY_TRY(const int64_t id, id_of_key(database, key));
  return id != 0;
}

Result<StoredJob> find_job(const Database& database, int64_t id) {
  MOTLEY_TRY(Statement asked, database.prepare(std::string("SELECT ") + kColumns +
                                               ", spec, key FROM jobs WHERE id = ?"));
  asked.bind(id);
  MOTLEY_TRY(const bool found, asked.step());
  if (!found) return fail(ErrorCode::kNotFound, "there is no job " + std::to_string(id));
  return whole_job_at(asked);
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
             database.prepare("UPDATE attempts SET ended = ?, took = ?, worth = ?, saved_step = ?, "
                              "outcome = ?, cause = ? WHERE job = ? AND epoch = ? AND ended = 0"));
  update.bind(attempt.ended)
      .bind(attempt.took.value())
      .bind_real(attempt.worth)
      .bind(attempt.saved_step)
      .bind(std::string_view(attempt.outcome))
      .bind(std::string_view(attempt.cause))
      .bind(attempt.job)
      .bind(int64_t{attempt.epoch.value()});
  MOTLEY_TRY_VOID(update.run());
  if (database.changes() == 0) return Unit{};
  MOTLEY_TRY(Statement owner, database.prepare("SELECT owner FROM jobs WHERE id = ?"));
  owner.bind(attempt.job);
  MOTLEY_TRY(const bool found, owner.step());
  return found ? add_usage(database, owner.text(0), attempt.worth, attempt.ended)
               : Result<Unit>(Unit{});
}

Result<Unit> number_jobs_above(const Database& database, int64_t id) {
  MOTLEY_TRY(Statement update, database.prepare("UPDATE sqlite_sequence SET seq = max(seq, ?) "
                                                "WHERE name = 'jobs'"));
  update.bind(id);
  MOTLEY_TRY_VOID(update.run());
  if (database.changes() > 0) return Unit{};
  MOTLEY_TRY(Statement insert,
             database.prepare("INSERT INTO sqlite_sequence (name, seq) VALUES ('jobs', ?)"));
  insert.bind(id);
  return insert.run();
}

Result<std::vector<StoredAttempt>> list_attempts(const Database& database, int64_t job) {
  MOTLEY_TRY(Statement asked,
             database.prepare("SELECT epoch, devices, begun, ended, took, worth, saved_step, "
                              "outcome, cause FROM attempts WHERE job = ? ORDER BY epoch"));
  asked.bind(job);
  return all_rows(std::move(asked), [&](const Statement& row) {
    return StoredAttempt{.job = job,
                         .epoch = Epoch(static_cast<int>(row.integer(0))),
                         .devices = lines_of(row.text(1)),
                         .begun = row.integer(2),
                         .ended = row.integer(3),
                         .took = Nanos(row.integer(4)),
                         .worth = row.real(5),
                         .saved_step = row.integer(6),
                         .outcome = row.text(7),
                         .cause = row.text(8)};
  });
}

Result<std::vector<std::pair<JobState, int64_t>>> count_jobs(const Database& database) {
  MOTLEY_TRY(Statement asked, database.prepare("SELECT state, count(*) FROM jobs GROUP BY state"));
  return all_rows(std::move(asked), [](const Statement& row) {
    return std::pair<JobState, int64_t>(static_cast<JobState>(row.integer(0)), row.integer(1));
  });
}

namespace {

/// The rows that a query looks at, by an index of theirs, and which of them it wants.
struct Scan {
  std::string from;                ///< with the condition that the index is for
  std::vector<std::string> texts;  ///< its parameters
  std::string number;              ///< the column that the index is in the order of
  std::string wanted;              ///< 1 where the row is; its parameters: name, queue, owner
};

bool is_unfinished(const JobQuery& query) {
  return query.state ? !is_final(*query.state) : query.which == JobFilter::kUnfinished;
}

/// Few jobs are expected to have a label or to be unfinished, then to have a name, then an owner,
/// then a queue.
void choose_rows(const JobQuery& query, Scan* scan) {
  const size_t equals = query.label.find('=');
  scan->number = "jobs.id";
  if (!query.label.empty()) {
    scan->number = "labels.job";
    scan->texts.push_back(query.label.substr(0, equals));
    scan->from =
        "labels INDEXED BY labels_by_name CROSS JOIN jobs ON jobs.id = labels.job "
        "WHERE labels.name = ?";
    if (equals == std::string::npos) return;
    scan->texts.push_back(query.label.substr(equals + 1));
    scan->from =
        "labels CROSS JOIN jobs ON jobs.id = labels.job "
        "WHERE labels.name = ? AND labels.value = ?";
  } else if (query.array > 0) {
    scan->from = "jobs INDEXED BY jobs_by_array WHERE array_first > 0 AND array_first = " +
                 std::to_string(query.array);
  } else if (query.state && (is_unfinished(query) || query.name.empty())) {
    scan->from = "jobs INDEXED BY jobs_by_state WHERE state = " +
                 std::to_string(static_cast<int>(*query.state));
  } else if (is_unfinished(query)) {
    scan->from = "jobs INDEXED BY jobs_unfinished WHERE finished = 0";
  } else if (!query.name.empty()) {
    scan->from = "jobs INDEXED BY jobs_by_name WHERE name = ?";
    scan->texts.push_back(query.name);
  } else if (!query.owner.empty()) {
    scan->from = "jobs INDEXED BY jobs_by_owner WHERE owner = ?";
    scan->texts.push_back(query.owner);
  } else if (!query.queue.empty()) {
    scan->from = "jobs INDEXED BY jobs_by_queue WHERE queue = ?";
    scan->texts.push_back(query.queue);
  } else if (query.which == JobFilter::kFinished) {
    scan->from = "jobs INDEXED BY jobs_finished WHERE finished > 0";
  } else {
    scan->from = "jobs WHERE true";
  }
}

Scan scan_of(const JobQuery& query) {
  Scan scan;
  choose_rows(query, &scan);
  scan.wanted = query.which == JobFilter::kAll          ? "1"
                : query.which == JobFilter::kUnfinished ? "finished = 0"
                                                        : "finished > 0";
  if (query.state) scan.wanted += " AND state = " + std::to_string(static_cast<int>(*query.state));
  if (query.array > 0) scan.wanted += " AND array_first = " + std::to_string(query.array);
  if (!query.name.empty()) scan.wanted += " AND jobs.name = ?";
  if (!query.queue.empty()) scan.wanted += " AND queue = ?";
  if (!query.owner.empty()) scan.wanted += " AND owner = ?";
  return scan;
}

/// Rows that one page looks at: a few ten milliseconds at most.
constexpr int kMostRows = 10'000;

}  // namespace

Result<JobPage> list_jobs(const Database& database, const JobQuery& query, int64_t before,
                          int most) {
  const Scan scan = scan_of(query);
  MOTLEY_TRY(Statement asked,
             database.prepare("SELECT " + std::string(kColumns) + ", " + scan.wanted + " FROM " +
                              scan.from + " AND " + scan.number + " < ? ORDER BY " + scan.number +
                              " DESC LIMIT ?"));
  if (!query.name.empty()) asked.bind(std::string_view(query.name));
  if (!query.queue.empty()) asked.bind(std::string_view(query.queue));
  if (!query.owner.empty()) asked.bind(std::string_view(query.owner));
  for (const std::string& text : scan.texts) asked.bind(std::string_view(text));
  asked.bind(before).bind(int64_t{kMostRows});
  JobPage page;
  for (int rows = 1; static_cast<int>(page.jobs.size()) < most; ++rows) {
    MOTLEY_TRY(const bool found, asked.step());
    if (!found) {
      page.next = 0;
      return page;
    }
    page.next = asked.integer(0);
    if (asked.integer(kColumnCount) != 0) page.jobs.push_back(job_at(asked));
    if (rows == kMostRows) break;
  }
  return page;
}

Result<std::vector<StoredJob>> unfinished_jobs(const Database& database, int64_t after, int most) {
  MOTLEY_TRY(
      Statement asked,
      database.prepare(std::string("SELECT ") + kColumns +
                       ", spec, key FROM jobs WHERE finished = 0 AND id > ? ORDER BY id LIMIT ?"));
  asked.bind(after).bind(int64_t{most});
  return all_rows(std::move(asked), whole_job_at);
}

Result<std::vector<int64_t>> jobs_ended_before(const Database& database, int64_t time, int most) {
  MOTLEY_TRY(Statement asked, database.prepare("SELECT id FROM jobs WHERE finished > 0 AND "
                                               "finished < ? ORDER BY finished LIMIT ?"));
  asked.bind(time).bind(int64_t{most});
  return all_rows(std::move(asked), [](const Statement& row) { return row.integer(0); });
}

Result<Unit> remove_job(const Database& database, int64_t job) {
  MOTLEY_TRY(const StoredJob stored, find_job(database, job));
  if (!is_final(stored.status.state))
    return fail(ErrorCode::kNotPermitted, "job " + std::to_string(job) + " has not ended: it is " +
                                              name_of(stored.status.state));
  for (const char* table :
       {"events WHERE job", "attempts WHERE job", "labels WHERE job", "jobs WHERE id"}) {
    MOTLEY_TRY(Statement remove, database.prepare(std::string("DELETE FROM ") + table + " = ?"));
    remove.bind(job);
    MOTLEY_TRY_VOID(remove.run());
  }
  return Unit{};
}

Result<Unit> remove_events(const Database& database, int64_t time, int most) {
  MOTLEY_TRY(Statement remove,
             database.prepare("DELETE FROM events WHERE id IN (SELECT id FROM events ORDER BY id "
                              "LIMIT ?) AND time < ?"));
  remove.bind(int64_t{most}).bind(time);
  return remove.run();
}

Result<Unit> try_to_write(const Database& database) {
  return database.execute("DELETE FROM room; INSERT INTO room VALUES (zeroblob(65536))");
}

Result<std::vector<StoredEvent>> list_events(const Database& database, int64_t job, int64_t after,
                                             int most) {
  const std::string which = job == 0 ? "" : "job = ? AND ";
  MOTLEY_TRY(Statement asked,
             database.prepare("SELECT id, time, job, text, node FROM events WHERE " + which +
                              "id > ? ORDER BY id LIMIT ?"));
  if (job != 0) asked.bind(job);
  asked.bind(after).bind(int64_t{most});
  return all_rows(std::move(asked), [](const Statement& row) {
    return StoredEvent{.id = row.integer(0),
                       .time = row.integer(1),
                       .job = row.integer(2),
                       .text = row.text(3),
                       .node = row.text(4)};
  });
}

Result<int64_t> event_before_newest(const Database& database, int64_t job, int64_t most) {
  const std::string which = job == 0 ? "" : "WHERE job = ? ";
  MOTLEY_TRY(Statement asked, database.prepare("SELECT id FROM events " + which +
                                               "ORDER BY id DESC LIMIT 1 OFFSET ?"));
  if (job != 0) asked.bind(job);
  asked.bind(most);
  MOTLEY_TRY(const bool found, asked.step());
  return found ? asked.integer(0) : 0;
}

}  // namespace motley
