#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "scheduler/store/group_commit.h"
#include "scheduler/store/job_store.h"
#include "scheduler/store/node_store.h"
#include "scheduler/store/speed_store.h"
#include "scheduler/store/token_store.h"
#include "scheduler/store/usage_store.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kNewest = INT64_MAX;

Database open_store(const std::string& path) {
  auto database = Database::open(path, Database::Mode::kWrite);
  EXPECT_TRUE(database) << database.error().message;
  const auto migrated = migrate(*database);
  EXPECT_TRUE(migrated) << migrated.error().message;
  return std::move(*database);
}

StoredJob job_named(const std::string& name, const std::string& key = "") {
  StoredJob job;
  job.name = name;
  job.owner = "ana";
  job.queue = "default";
  job.spec = "{\"name\": \"" + name + "\"}";
  job.key = key;
  job.submitted = 5;
  return job;
}

std::vector<StoredJob> array_named(const std::string& name, int size, const std::string& key = "") {
  std::vector<StoredJob> jobs;
  for (int index = 0; index < size; ++index) {
    jobs.push_back(job_named(name + "-" + std::to_string(index), index == 0 ? key : ""));
    jobs.back().array.index = index;
    jobs.back().array.size = size;
    jobs.back().spec =
        "{\"name\": \"" + jobs.back().name + "\", \"size\": " + std::to_string(size) + "}";
  }
  return jobs;
}

class Store : public ::testing::Test {
 protected:
  std::string path() const { return directory_.path() + "/motley.db"; }
  testing::TemporaryDirectory directory_;
};

TEST_F(Store, KeepsAttempts) {
  const Database database = open_store(path());
  const auto id = add_jobs(database, {job_named("a")});
  StoredAttempt attempt;
  attempt.job = *id;
  attempt.epoch = Epoch(1);
  attempt.devices = {"a1/0", "a1/1"};
  attempt.begun = 7;
  ASSERT_TRUE(add_attempt(database, attempt));
  EXPECT_FALSE(add_attempt(database, attempt));  // an epoch is never used again
  attempt.ended = 9;
  attempt.took = Nanos(2);
  attempt.worth = 3.5;
  attempt.saved_step = 40;
  attempt.outcome = "failed";
  attempt.cause = "it was killed";
  ASSERT_TRUE(end_attempt(database, attempt));
  attempt.outcome = "done";
  ASSERT_TRUE(end_attempt(database, attempt));  // told twice: the first end counts
  const auto kept = list_attempts(database, *id);
  ASSERT_EQ(kept->size(), 1u);
  EXPECT_EQ(kept->front().devices, attempt.devices);
  EXPECT_EQ(kept->front().begun, 7);
  EXPECT_EQ(kept->front().took, Nanos(2));
  EXPECT_EQ(kept->front().worth, 3.5);
  EXPECT_EQ(kept->front().saved_step, 40);
  EXPECT_EQ(kept->front().outcome, "failed");
}

TEST_F(Store, OwnersUsageIsKeptAndIsWorthHalfAfterAWeek) {
  const Database database = open_store(path());
  const auto id = add_jobs(database, {job_named("a")});
  StoredAttempt attempt{.job = *id, .epoch = Epoch(1)};
  ASSERT_TRUE(add_attempt(database, attempt));
  attempt.ended = 5'000;
  attempt.worth = 8;
  attempt.outcome = "done";
  ASSERT_TRUE(end_attempt(database, attempt));
  ASSERT_TRUE(end_attempt(database, attempt));  // counts once
  const std::string owner = find_job(database, *id)->owner;
  ASSERT_EQ(list_usage(database)->size(), 1u);
  EXPECT_EQ(list_usage(database)->front().worth, 8);
  ASSERT_TRUE(add_usage(database, owner, 1, 5'000 + kUsageHalfLife.value()));
  ASSERT_TRUE(add_usage(database, "eva", 2, 7));
  const auto kept = list_usage(database);
  EXPECT_EQ(kept->size(), 2u);
  for (const StoredUsage& usage : *kept)
    EXPECT_DOUBLE_EQ(usage.worth, usage.owner == "eva" ? 2 : 5);
  EXPECT_DOUBLE_EQ(worth_after(3, Nanos(-5)), 3);  // of a clock that was set back
}

TEST_F(Store, NumbersOfJobsCanBeRaised) {
  const Database database = open_store(path());
  ASSERT_TRUE(number_jobs_above(database, 6));
  EXPECT_EQ(*add_jobs(database, {job_named("a")}), 7);
  ASSERT_TRUE(number_jobs_above(database, 3));
  EXPECT_EQ(*add_jobs(database, {job_named("b")}), 8);
  ASSERT_TRUE(number_jobs_above(database, 20));
  EXPECT_EQ(*add_jobs(database, {job_named("c")}), 21);
}

TEST_F(Store, KeepsWhatWasMeasured) {
  const Database database = open_store(path());
  StoredSpeed speed{.workload = "w",
                    .traits = "fast\n0",
                    .type = "fast",
                    .samples_per_second = 10,
                    .job = 1,
                    .name = "first",
                    .measured = 5};
  ASSERT_TRUE(save_speed(database, speed));
  speed.samples_per_second = 12;
  speed.measured = 6;
  ASSERT_TRUE(save_speed(database, speed));  // measured anew
  speed.traits = "slow\n0";
  speed.measured = 7;
  ASSERT_TRUE(save_speed(database, speed));
  ASSERT_EQ(list_speeds(database, "w")->size(), 2u);
  EXPECT_EQ(list_speeds(database, "w")->front().samples_per_second, 12);
  EXPECT_TRUE(list_speeds(database, "another")->empty());
  EXPECT_EQ(newest_speeds(database, 1)->front().traits, "slow\n0");
  ASSERT_TRUE(remove_speeds(database, 7));
  EXPECT_EQ(list_speeds(database, "w")->size(), 1u);
}

TEST_F(Store, BringsAnOlderDatabaseUpToDate) {
  {
    const Database database = open_store(path());
    StoredJob job = job_named("old");
    job.spec = R"({"service": {"labels": {"team.a": "vision"}}})";
    ASSERT_TRUE(add_jobs(database, {job}));
    ASSERT_TRUE(database.execute(
        "DROP TABLE speeds; ALTER TABLE jobs DROP COLUMN measuring; DROP TABLE attempts; DROP "
        "TABLE labels; DROP TABLE room; DROP TABLE tokens; DROP TABLE "
        "nodes; DROP INDEX "
        "jobs_by_state; DROP TABLE usage; DROP INDEX jobs_by_owner; DROP INDEX jobs_by_array; "
        "ALTER TABLE jobs DROP "
        "COLUMN array_first; "
        "ALTER TABLE jobs DROP COLUMN array_index; ALTER TABLE jobs DROP COLUMN array_size; "
        "ALTER TABLE jobs DROP COLUMN submitted_spec; "
        "DROP INDEX jobs_by_name; DROP INDEX jobs_by_queue; DROP INDEX jobs_by_end; "
        "DROP TABLE events; CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, time "
        "INTEGER "
        "NOT NULL, job INTEGER NOT NULL REFERENCES jobs (id), text TEXT NOT NULL) STRICT;"
        "CREATE INDEX events_of_job ON events (job, id);"
        "ALTER TABLE jobs DROP COLUMN setbacks;"
        "INSERT INTO events VALUES (41, 5, 1, 'queued'); PRAGMA user_version = 1"));
  }
  const Database database = open_store(path());
  EXPECT_EQ(list_jobs(database, {.label = "team.a=vision"}, kNewest, 5)->jobs.size(), 1u);
  EXPECT_EQ(find_job(database, 1)->name, "old");
  EXPECT_TRUE(list_attempts(database, 1)->empty());
  EXPECT_TRUE(list_tokens(database)->empty());
  ASSERT_TRUE(add_node_event(database, "a1", 6, "ready"));
  const auto events = list_events(database, 0, 0, 10);
  ASSERT_EQ(events->size(), 2u);
  EXPECT_EQ((*events)[0].id, 41);
  EXPECT_EQ((*events)[0].job, 1);
  EXPECT_EQ((*events)[1].id, 42);  // numbers go on
  EXPECT_EQ((*events)[1].job, 0);
  EXPECT_EQ((*events)[1].node, "a1");
  EXPECT_EQ(*event_before_newest(database, 0, 1), 41);
  EXPECT_EQ(*event_before_newest(database, 0, 2), 0);
  EXPECT_EQ(*event_before_newest(database, 1, 0), 41);
  EXPECT_EQ(*event_before_newest(database, 1, 1), 0);
}

TEST_F(Store, TokensOfAnOlderDatabaseSpeakForNoNodeYet) {
  {
    const Database database = open_store(path());
    ASSERT_TRUE(
        add_token(database, {.id = 0, .user = "ana", .role = "node", .label = "", .hash = "h"}));
    ASSERT_TRUE(database.execute(
        "DROP TABLE usage; DROP INDEX jobs_by_owner; DROP INDEX jobs_by_array; "
        "ALTER TABLE jobs DROP COLUMN array_first; "
        "ALTER TABLE jobs DROP COLUMN array_index; ALTER TABLE jobs DROP COLUMN array_size; "
        "ALTER TABLE jobs DROP COLUMN submitted_spec; "
        "ALTER TABLE jobs DROP COLUMN setbacks; ALTER TABLE tokens DROP COLUMN "
        "node; PRAGMA user_version = 6"));
  }
  const Database database = open_store(path());
  EXPECT_EQ((**find_token(database, 1)).node, "");
  ASSERT_TRUE(bind_token(database, 1, "n1"));
  ASSERT_TRUE(bind_token(database, 1, "n2"));
  EXPECT_EQ((*list_tokens(database))[0].node, "n1");
  EXPECT_EQ((*list_tokens(database))[0].hash, "h");
}

TEST_F(Store, BringsADatabaseOfThePreviousVersionUpToDate) {
  {
    const Database database = open_store(path());
    const int64_t id = *add_jobs(database, {job_named("old", "key")});
    StoredAttempt attempt{.job = id, .epoch = Epoch(1)};
    ASSERT_TRUE(add_attempt(database, attempt));
    attempt.ended = 9;
    attempt.worth = 3;
    ASSERT_TRUE(end_attempt(database, attempt));
    ASSERT_TRUE(database.execute(
        "DROP TABLE usage; DROP INDEX jobs_by_owner; DROP INDEX jobs_by_array; "
        "ALTER TABLE jobs DROP COLUMN array_first; "
        "ALTER TABLE jobs DROP COLUMN array_index; ALTER TABLE jobs DROP COLUMN array_size; "
        "ALTER TABLE jobs DROP COLUMN submitted_spec; PRAGMA user_version = 7"));
  }
  const Database database = open_store(path());
  const auto usage = list_usage(database);
  ASSERT_EQ(usage->size(), 1u);
  EXPECT_EQ(usage->front().worth, 3);
  EXPECT_EQ(find_job(database, 1)->array.first, 0);
  EXPECT_EQ(*add_jobs(database, {job_named("old", "key")}), 1);
  EXPECT_EQ(*add_jobs(database, array_named("new", 2)), 2);
  EXPECT_EQ(find_job(database, 3)->array.first, 2);
}

TEST_F(Store, AnArrayIsKeptWholeUnderOneKey) {
  const Database database = open_store(path());
  ASSERT_TRUE(add_jobs(database, {job_named("a")}));
  const auto first = add_jobs(database, array_named("sweep", 3, "key"));
  EXPECT_EQ(*first, 2);
  for (int index = 0; index < 3; ++index) {
    const StoredJob job = *find_job(database, 2 + index);
    EXPECT_EQ(job.name, "sweep-" + std::to_string(index));
    EXPECT_EQ(job.array.first, 2);
    EXPECT_EQ(job.array.index, index);
    EXPECT_EQ(job.array.size, 3);
  }
  bool is_new = true;
  EXPECT_EQ(*add_jobs(database, array_named("sweep", 3, "key"), &is_new), 2);
  EXPECT_FALSE(is_new);
  EXPECT_FALSE(add_jobs(database, array_named("sweep", 2, "key")));
  EXPECT_FALSE(add_jobs(database, array_named("other", 3, "key")));
  EXPECT_EQ(list_jobs(database, {.array = 2}, kNewest, 10)->jobs.size(), 3u);
  EXPECT_EQ(list_jobs(database, {.name = "sweep-1", .array = 2}, kNewest, 10)->jobs.size(), 1u);
  EXPECT_TRUE(list_jobs(database, {.array = 1}, kNewest, 10)->jobs.empty());
}

TEST_F(Store, AJobThatIsUpdatedIsStillTheOneOfItsKey) {
  const Database database = open_store(path());
  StoredJob job = job_named("a", "key");
  job.labels = {{"team", "vision"}};
  job.id = *add_jobs(database, {job});
  StoredJob changed = job;
  changed.spec = "{\"other\": true}";
  changed.priority = 70;
  changed.labels = {{"team", "speech"}};
  ASSERT_TRUE(save_spec(database, changed));
  changed.priority = 80;
  ASSERT_TRUE(save_spec(database, changed));
  EXPECT_EQ(find_job(database, job.id)->spec, changed.spec);
  EXPECT_EQ(find_job(database, job.id)->priority, 80);
  EXPECT_EQ(*add_jobs(database, {job}), job.id);
  EXPECT_TRUE(list_jobs(database, {.label = "team=vision"}, kNewest, 10)->jobs.empty());
  EXPECT_EQ(list_jobs(database, {.label = "team=speech"}, kNewest, 10)->jobs.size(), 1u);
}

TEST_F(Store, KeepsNodesAsTheyStand) {
  const StoredNode node{.name = "a1",
                        .session = "s",
                        .fleet = "{}",
                        .labels = R"({"rack":"7"})",
                        .lost = true,
                        .cause = "silent",
                        .draining = true,
                        .reason = "a fan",
                        .drain_left = Nanos(5),
                        .changed = 9};
  const Database database = open_store(path());
  ASSERT_TRUE(save_node(database, {.name = "b1"}));
  ASSERT_TRUE(save_node(database, {.name = "a1"}));
  ASSERT_TRUE(save_node(database, node));
  const auto nodes = list_nodes(database);
  ASSERT_EQ(nodes->size(), 2u);
  EXPECT_EQ((*nodes)[0], node);
  EXPECT_EQ((*nodes)[1].drain_left, Nanos(-1));
}

TEST_F(Store, KeepsJobsAsTheyStand) {
  const Database database = open_store(path());
  const auto id = add_jobs(database, {job_named("a")});
  ASSERT_TRUE(id);
  JobStatus running;
  running.state = JobState::kRunning;
  running.epoch = Epoch(3);
  running.held = true;
  running.restarts = 2;
  running.not_before = Nanos(77);
  running.cause = "rank 1 died";
  ASSERT_TRUE(save_status(database, *id, {}, running, 9));
  const auto found = find_job(database, *id);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->spec, "{\"name\": \"a\"}");
  EXPECT_EQ(found->status.state, JobState::kRunning);
  EXPECT_EQ(found->status.epoch, Epoch(3));
  EXPECT_TRUE(found->status.held);
  EXPECT_EQ(found->status.not_before, Nanos(77));
  EXPECT_EQ(found->status.cause, "rank 1 died");
  EXPECT_EQ(found->finished, 0);
  EXPECT_FALSE(find_job(database, 99));
}

TEST_F(Store, ChangesOnlyWhatStandsWhereItWasThought) {
  const Database database = open_store(path());
  const auto id = add_jobs(database, {job_named("a")});
  JobStatus cancelled;
  cancelled.state = JobState::kCancelled;
  ASSERT_TRUE(save_status(database, *id, {}, cancelled, 9));
  JobStatus running;
  running.state = JobState::kRunning;
  const auto late = save_status(database, *id, {}, running, 10);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kNotPermitted);
  EXPECT_EQ(find_job(database, *id)->status.state, JobState::kCancelled);
  EXPECT_EQ(find_job(database, *id)->finished, 9);
}

TEST_F(Store, TheSameSubmissionTwiceIsOneJob) {
  const Database database = open_store(path());
  const auto first = add_jobs(database, {job_named("a", "key-1")});
  EXPECT_EQ(*add_jobs(database, {job_named("a", "key-1")}), *first);
  EXPECT_NE(*add_jobs(database, {job_named("a", "key-2")}), *first);
  EXPECT_NE(*add_jobs(database, {job_named("a")}), *add_jobs(database, {job_named("a")}));
  const auto other = add_jobs(database, {job_named("b", "key-1")});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kUsage);
}

TEST_F(Store, ListsPagesTheNewestFirst) {
  const Database database = open_store(path());
  for (int i = 0; i < 25; ++i) {
    const auto id = add_jobs(database, {job_named(std::to_string(i))});
    JobStatus done;
    done.state = JobState::kSucceeded;
    if (i % 2 == 0) {
      ASSERT_TRUE(save_status(database, *id, {}, done, 9));
    }
  }
  int64_t before = kNewest;
  std::vector<std::string> names;
  while (true) {
    const auto page = list_jobs(database, {.which = JobFilter::kUnfinished}, before, 5);
    ASSERT_TRUE(page);
    for (const StoredJob& job : page->jobs) names.push_back(job.name);
    before = page->next;
    if (before == 0) break;
  }
  ASSERT_EQ(names.size(), 12u);
  EXPECT_EQ(names.front(), "23");
  EXPECT_EQ(names.back(), "1");
  EXPECT_EQ(list_jobs(database, {.which = JobFilter::kFinished}, kNewest, 100)->jobs.size(), 13u);
  EXPECT_EQ(unfinished_jobs(database)->front().name, "1");
}

/// Every filter, alone and with others, against the jobs themselves.
TEST_F(Store, FindsWhatFiltersAskFor) {
  const Database database = open_store(path());
  std::mt19937 random(5);
  std::vector<StoredJob> jobs;
  ASSERT_TRUE(database.execute("BEGIN"));
  for (int i = 0; i < 400; ++i) {
    StoredJob job = job_named("name-" + std::to_string(random() % 3));
    job.queue = "queue-" + std::to_string(random() % 3);
    job.owner = "owner-" + std::to_string(random() % 3);
    if (random() % 2 == 0) job.labels["team"] = std::to_string(random() % 2);
    job.id = *add_jobs(database, {job});
    JobStatus after;
    after.state = static_cast<JobState>(random() % 10);
    ASSERT_TRUE(save_status(database, job.id, {}, after, 9));
    job.status = after;
    jobs.insert(jobs.begin(), job);
  }
  ASSERT_TRUE(database.execute("COMMIT"));
  const auto fits = [](const JobQuery& query, const StoredJob& job) {
    const bool final = is_final(job.status.state);
    const auto team = job.labels.find("team");
    return (query.which == JobFilter::kAll || final == (query.which == JobFilter::kFinished)) &&
           (!query.state || *query.state == job.status.state) &&
           (query.name.empty() || query.name == job.name) &&
           (query.queue.empty() || query.queue == job.queue) &&
           (query.owner.empty() || query.owner == job.owner) &&
           (query.label.empty() ||
            (team != job.labels.end() &&
             (query.label == "team" || query.label == "team=" + team->second)));
  };
  for (int i = 0; i < 500; ++i) {
    JobQuery query;
    query.which = static_cast<JobFilter>(random() % 3);
    if (random() % 3 == 0) query.state = static_cast<JobState>(random() % 10);
    if (random() % 2 == 0) query.name = "name-" + std::to_string(random() % 4);
    if (random() % 2 == 0) query.queue = "queue-" + std::to_string(random() % 4);
    if (random() % 2 == 0) query.owner = "owner-" + std::to_string(random() % 4);
    if (random() % 3 == 0) query.label = random() % 2 == 0 ? "team" : "team=1";
    const auto before = static_cast<int64_t>(1 + random() % 500);
    std::vector<int64_t> wanted, found;
    for (const StoredJob& job : jobs)
      if (job.id < before && fits(query, job) && wanted.size() < 20) wanted.push_back(job.id);
    const auto page = list_jobs(database, query, before, 20);
    ASSERT_TRUE(page) << page.error().message;
    for (const StoredJob& job : page->jobs) found.push_back(job.id);
    ASSERT_EQ(found, wanted);
  }
}

TEST_F(Store, APageLooksAtABoundedNumberOfJobs) {
  const Database database = open_store(path());
  constexpr int kJobs = 25'000;
  ASSERT_TRUE(database.execute("BEGIN"));
  for (int i = 0; i < kJobs; ++i) {
    StoredJob job = job_named("same");
    if (i == 0) job.queue = "rare";
    ASSERT_TRUE(add_jobs(database, {job}));
  }
  ASSERT_TRUE(database.execute("COMMIT"));
  const JobQuery query{.name = "same", .queue = "rare"};
  int64_t before = kNewest;
  std::vector<int64_t> found;
  int pages = 0;
  do {
    const auto page = list_jobs(database, query, before, 50);
    ASSERT_TRUE(page);
    for (const StoredJob& job : page->jobs) found.push_back(job.id);
    before = page->next;
    ++pages;
  } while (before > 0);
  EXPECT_THAT(found, ::testing::ElementsAre(1));
  EXPECT_EQ(pages, 3);
}

TEST_F(Store, RemovesAJobThatHasEndedWithAllOfIt) {
  const Database database = open_store(path());
  StoredJob job = job_named("a", "key");
  job.labels = {{"team", "vision"}};
  const int64_t id = *add_jobs(database, {job}), other = *add_jobs(database, {job_named("b")});
  ASSERT_TRUE(add_event(database, id, 1, "submitted"));
  ASSERT_TRUE(add_event(database, other, 2, "submitted"));
  ASSERT_TRUE(add_attempt(database, {.job = id, .epoch = Epoch(1)}));
  EXPECT_EQ(remove_job(database, id).error().code, ErrorCode::kNotPermitted);
  JobStatus done;
  done.state = JobState::kSucceeded;
  ASSERT_TRUE(save_status(database, id, {}, done, 9));
  EXPECT_TRUE(jobs_ended_before(database, 9, 10)->empty());
  EXPECT_THAT(*jobs_ended_before(database, 10, 10), ::testing::ElementsAre(id));
  ASSERT_TRUE(remove_job(database, id));
  EXPECT_FALSE(find_job(database, id));
  EXPECT_TRUE(list_attempts(database, id)->empty());
  EXPECT_TRUE(list_jobs(database, {.label = "team"}, kNewest, 5)->jobs.empty());
  EXPECT_FALSE(*key_is_known(database, "key"));
  EXPECT_EQ(list_events(database, 0, 0, 10)->size(), 1u);
  EXPECT_EQ(remove_job(database, id).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(remove_events(database, 2, 10));
  EXPECT_EQ(list_events(database, 0, 0, 10)->size(), 1u);
  ASSERT_TRUE(remove_events(database, 3, 10));
  EXPECT_TRUE(list_events(database, 0, 0, 10)->empty());
  EXPECT_GT(*add_jobs(database, {job_named("c")}), other);
}

TEST_F(Store, TellsEventsInTheirOrder) {
  const Database database = open_store(path());
  const int64_t a = *add_jobs(database, {job_named("a")}),
                b = *add_jobs(database, {job_named("b")});
  ASSERT_TRUE(add_event(database, a, 1, "queued"));
  ASSERT_TRUE(add_event(database, b, 2, "queued"));
  ASSERT_TRUE(add_event(database, a, 3, "running"));
  const auto of_a = list_events(database, a, 0, 10);
  ASSERT_EQ(of_a->size(), 2u);
  EXPECT_EQ((*of_a)[1].text, "running");
  EXPECT_EQ(list_events(database, 0, (*of_a)[0].id, 10)->size(), 2u);
  EXPECT_FALSE(add_event(database, 99, 1, "of no job"));
}

TEST_F(Store, IsOpenedAgainButNotByAnOlderProgram) {
  { open_store(path()); }
  {
    const Database database = open_store(path());
    ASSERT_TRUE(database.execute("PRAGMA user_version = 1000"));
  }
  const auto database = Database::open(path(), Database::Mode::kWrite);
  ASSERT_TRUE(database);
  const auto migrated = migrate(*database);
  ASSERT_FALSE(migrated);
  EXPECT_EQ(migrated.error().code, ErrorCode::kBrokenInstall);
}

TEST_F(Store, WhatIsNoDatabaseIsSaidSo) {
  std::ofstream(path()) << std::string(5000, 'x');
  const auto database = Database::open(path(), Database::Mode::kWrite);
  ASSERT_FALSE(database);
  EXPECT_EQ(database.error().code, ErrorCode::kCorrupt);
  EXPECT_FALSE(Database::open(directory_.path() + "/missing", Database::Mode::kRead));
}

TEST_F(Store, IsCopiedWhileItIsWritten) {
  GroupCommit commits(open_store(path()));
  std::atomic<bool> end{false};
  std::thread writer([&] {
    while (!end)
      EXPECT_TRUE(commits.write([](Database& database) -> Result<Unit> {
        MOTLEY_TRY_VOID(add_jobs(database, {job_named("a")}));
        return Unit{};
      }));
  });
  const auto reader = Database::open(path(), Database::Mode::kRead);
  ASSERT_TRUE(reader);
  const std::string copy = directory_.path() + "/copy.db";
  const auto copied = reader->back_up(copy);
  end = true;
  writer.join();
  ASSERT_TRUE(copied) << copied.error().message;
  EXPECT_TRUE(unfinished_jobs(open_store(copy)));
}

TEST_F(Store, AChangeThatFailsTakesNoOtherWithIt) {
  GroupCommit commits(open_store(path()));
  std::atomic<int> written{0}, failed{0};
  constexpr int kChanges = 200;
  for (int i = 0; i < kChanges; ++i)
    commits.write(
        [i](Database& database) -> Result<Unit> {
          MOTLEY_TRY_VOID(add_jobs(database, {job_named(std::to_string(i))}));
          return i % 3 == 0 ? Result<Unit>(fail(ErrorCode::kUsage, "no")) : Unit{};
        },
        [&](Result<Unit> result) { ++(result ? written : failed); });
  EXPECT_TRUE(commits.write([](Database&) -> Result<Unit> { return Unit{}; }));
  EXPECT_EQ(failed, (kChanges + 2) / 3);
  const auto reader = Database::open(path(), Database::Mode::kRead);
  EXPECT_EQ(unfinished_jobs(*reader)->size(), static_cast<size_t>(written));
}

TEST_F(Store, WhatAFailureUndidIsNotAcknowledged) {
  GroupCommit commits(open_store(path()));
  std::mutex gate;
  std::atomic<int> written{0};
  const auto add = [](Database& database) -> Result<Unit> {
    MOTLEY_TRY_VOID(add_jobs(database, {job_named("a")}));
    return Unit{};
  };
  gate.lock();  // until all that follows is one transaction
  commits.write(
      [&gate](Database&) -> Result<Unit> {
        const std::lock_guard wait(gate);
        return Unit{};
      },
      [](const Result<Unit>&) {});
  const auto count = [&](const Result<Unit>& result) { written += result ? 1 : 0; };
  commits.write(add, count);
  commits.write(
      [](Database& database) -> Result<Unit> {  // as SQLite does it by itself when a disk is full
        MOTLEY_TRY_VOID(database.execute("ROLLBACK"));
        return fail(ErrorCode::kIo, "disk full");
      },
      count);
  commits.write(add, count);
  gate.unlock();
  (void)commits.write([](Database&) -> Result<Unit> { return Unit{}; });
  const auto reader = Database::open(path(), Database::Mode::kRead);
  EXPECT_EQ(unfinished_jobs(*reader)->size(), static_cast<size_t>(written));
}

/// Submits until it is killed; says each number once it is acknowledged.
[[noreturn]] void submit_for_ever(const std::string& path, int acknowledgements) {
  GroupCommit commits(open_store(path));
  for (int i = 0;; ++i) {
    auto id = std::make_shared<int64_t>(0);
    commits.write(
        [id](Database& database) -> Result<Unit> {
          MOTLEY_TRY(*id, add_jobs(database, {job_named("a")}));
          return Unit{};
        },
        [id, acknowledgements](const Result<Unit>& result) {
          if (result && write(acknowledgements, id.get(), sizeof *id) != sizeof *id) _exit(1);
        });
    if (i % 8 == 0) usleep(300);
  }
}

TEST_F(Store, NothingAcknowledgedIsLostByAKill) {
  std::mt19937 random(2);
  size_t acknowledged = 0;
  for (int round = 0; round < 20; ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) submit_for_ever(path(), ends[1]);
    close(ends[1]);
    pollfd first{ends[0], POLLIN, 0};
    poll(&first, 1, 60'000);
    usleep(static_cast<useconds_t>(random() % 60'000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const Database database = open_store(path());
    for (int64_t id = 0; read(ends[0], &id, sizeof id) == sizeof id; ++acknowledged)
      ASSERT_TRUE(find_job(database, id)) << "job " << id;
    close(ends[0]);
  }
  EXPECT_GE(acknowledged, 20u);
}

/// Random changes against a table kept by hand, with the database opened anew now and then.
TEST_F(Store, AgreesWithASmallModel) {
  std::mt19937 random(4);
  std::map<int64_t, StoredJob> model;
  std::map<std::string, int64_t> keys;
  auto database = std::make_unique<Database>(open_store(path()));
  for (int i = 0; i < 3000; ++i) {
    if (random() % 100 == 0) {
      database.reset();
      database = std::make_unique<Database>(open_store(path()));
    }
    if (random() % 2 == 0 || model.empty()) {
      const std::string key = random() % 2 == 0 ? "" : std::to_string(random() % 500);
      const StoredJob job = job_named("job", key);
      const auto id = add_jobs(*database, {job});
      ASSERT_TRUE(id);
      if (keys.contains(key)) {
        ASSERT_EQ(*id, keys[key]);
      } else {
        ASSERT_FALSE(model.contains(*id));
        model[*id] = job;
        if (!key.empty()) keys[key] = *id;
      }
      continue;
    }
    const int64_t id = 1 + static_cast<int64_t>(random() % model.size());
    JobStatus before, after;
    before.state = static_cast<JobState>(random() % 3);
    after.state = static_cast<JobState>(random() % 10);
    const bool may = model[id].status.state == before.state;
    ASSERT_EQ(save_status(*database, id, before, after, 1).has_value(), may);
    if (may) model[id].status = after;
  }
  size_t unfinished = 0;
  for (const auto& [id, job] : model) {
    ASSERT_EQ(find_job(*database, id)->status.state, job.status.state);
    unfinished += is_final(job.status.state) ? 0 : 1;
  }
  EXPECT_EQ(unfinished_jobs(*database)->size(), unfinished);
}

}  // namespace
}  // namespace motley
