// Profiles before promises: what is measured, when, and what decisions make of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/scheduler/service/fake_service.h"

namespace motley {
namespace {

using ::testing::Contains;
using testing::fleet_of;
using testing::job_on;

JobSpec job_of_width(int width, int devices) {
  JobSpec job = job_on(devices);
  job.model.width = width;
  return job;
}

std::vector<std::string> devices_in(const AttemptOrder& order) {
  std::vector<std::string> ids;
  for (const DeviceSpec& device : order.fleet.devices) ids.push_back(device.id);
  return ids;
}

/// Nothing was measured yet.
class MeasuredFirst : public ::testing::Test {
 protected:
  using Ids = std::vector<std::string>;
  const AttemptOrder& newest() const { return service_.launcher.orders.back(); }

  testing::FakeService service_{fleet_of({"a", "a", "b", "b"}), "shortest_remaining", false};
};

TEST_F(MeasuredFirst, OnOneDeviceOfEachKindBeforeItGetsWhatIsFastest) {
  const int64_t job = *service_.submit(job_on(2));
  EXPECT_EQ(service_.state(job), JobState::kProfiling);
  ASSERT_TRUE(newest().measure);
  EXPECT_EQ(devices_in(newest()), (Ids{"here/0", "here/2"}));

  service_.measured(job, {{"here/0", 10}, {"here/2", 40}});
  EXPECT_EQ(service_.state(job), JobState::kRunning);
  EXPECT_FALSE(newest().measure);
  EXPECT_EQ(devices_in(newest()), (Ids{"here/2", "here/3"}));
  EXPECT_EQ(service_.attempts(job).front().outcome, "measured");
}

TEST_F(MeasuredFirst, OnceForAllThatTrainTheSame) {
  const int64_t first = *service_.submit(job_on(1));
  const int64_t second = *service_.submit(job_on(1));
  const int64_t other = *service_.submit(job_of_width(16, 1));
  EXPECT_EQ(service_.state(first), JobState::kProfiling);
  EXPECT_EQ(service_.state(second), JobState::kQueued);
  EXPECT_EQ(service_.state(other), JobState::kProfiling);
  EXPECT_THAT(service_.coordinator().why(second)->reasons,
              Contains("job 1, which trains the same, is being measured: that will serve both"));
  service_.measured(first, {{"here/0", 10}, {"here/2", 40}});
  EXPECT_EQ(service_.state(first), JobState::kRunning);
  EXPECT_EQ(service_.state(second), JobState::kRunning);
  EXPECT_EQ(service_.status(second).epoch, Epoch(1));
}

TEST_F(MeasuredFirst, ALaterCoordinatorKnowsItToo) {
  const int64_t job = *service_.submit(job_on(1));
  service_.measured(job, {{"here/0", 10}, {"here/2", 40}});
  service_.end(job, AttemptOutcome::kDone);
  service_.restart();
  const int64_t next = *service_.submit(job_on(1));
  EXPECT_EQ(service_.state(next), JobState::kRunning);
  EXPECT_EQ(devices_in(newest()), Ids{"here/2"});
}

TEST_F(MeasuredFirst, ACoordinatorThatIsKilledMeanwhileFindsItAgain) {
  const int64_t job = *service_.submit(job_on(1));
  service_.restart();
  EXPECT_EQ(service_.state(job), JobState::kProfiling);
  EXPECT_EQ(service_.status(job).epoch, Epoch(1));
  EXPECT_TRUE(newest().measure);
  service_.measured(job, {{"here/0", 10}, {"here/2", 40}});
  EXPECT_EQ(service_.state(job), JobState::kRunning);
}

TEST_F(MeasuredFirst, KindsThatAreTakenDoNotKeepItWaiting) {
  service_.submit(job_of_width(16, 1));
  service_.measured(1, {{"here/0", 1}, {"here/2", 10}});
  JobSpec both_b = job_of_width(16, 2);
  both_b.devices.types = {"b"};
  service_.end(1, AttemptOutcome::kDone);
  const int64_t holder = *service_.submit(both_b);
  ASSERT_EQ(service_.state(holder), JobState::kRunning);

  const int64_t job = *service_.submit(job_on(1));
  EXPECT_EQ(devices_in(newest()), Ids{"here/0"});
  service_.measured(job, {{"here/0", 10}});
  EXPECT_EQ(service_.state(job), JobState::kRunning);
  EXPECT_EQ(devices_in(newest()), Ids{"here/0"});
}

TEST_F(MeasuredFirst, WhatCannotTrainItIsNotGiven) {
  const int64_t job = *service_.submit(job_on(0));  // all there is
  service_.measured(job, {{"here/0", 0}, {"here/2", 40}});
  EXPECT_EQ(service_.state(job), JobState::kRunning);
  EXPECT_EQ(devices_in(newest()), (Ids{"here/2", "here/3"}));
}

TEST(DevicesOfOneTypeThatDiffer, AreMeasuredEach) {
  FleetSpec fleet = fleet_of({"a", "a", "a"});
  fleet.devices[1].threads = 4;
  testing::FakeService service(fleet, "shortest_remaining", false);
  const int64_t job = *service.submit(job_on(1));
  EXPECT_EQ(devices_in(service.launcher.orders.back()),
            (std::vector<std::string>{"here/0", "here/1"}));
  service.measured(job, {{"here/0", 10}, {"here/1", 40}});
  EXPECT_EQ(devices_in(service.launcher.orders.back()), std::vector<std::string>{"here/1"});
}

TEST_F(MeasuredFirst, WhereNothingCanTrainItItSaysSo) {
  const int64_t job = *service_.submit(job_on(0));
  service_.measured(job, {{"here/0", 0}, {"here/2", 0}});
  EXPECT_EQ(service_.state(job), JobState::kQueued);
  EXPECT_EQ(service_.coordinator().why(job)->reasons.front(),
            "the devices there are would not do: none of the devices there can train it: a, b");
}

TEST_F(MeasuredFirst, ProgramsAreNot) {
  JobSpec job = job_on(1);
  job.program.command = {"true"};
  EXPECT_EQ(service_.state(*service_.submit(job)), JobState::kRunning);
}

TEST_F(MeasuredFirst, CancelledMeanwhileItEnds) {
  const int64_t job = *service_.submit(job_on(1));
  ASSERT_TRUE(service_.ask(job, JobRequest::kCancel));
  EXPECT_EQ(service_.launcher.stopped.size(), 1u);
  service_.measured(job, {{"here/0", 10}, {"here/2", 40}});
  EXPECT_EQ(service_.state(job), JobState::kCancelled);
}

TEST_F(MeasuredFirst, WhatNeverEndsIsKilledAndTriedAgain) {
  const int64_t job = *service_.submit(job_on(1));
  service_.pass(700);
  EXPECT_EQ(service_.launcher.killed, (std::vector<AttemptId>{{job, Epoch(1)}}));
}

TEST(MeasuredByAnotherVersion, WhatRunsRunsOn) {
  testing::FakeService service(fleet_of({"a"}));
  JobSpec job = job_on(1);
  job.service.preemptible = true;
  const int64_t id = *service.submit(job);
  service.forget_speeds();
  service.restart();
  service.pass(100);
  EXPECT_EQ(service.state(id), JobState::kRunning);
  EXPECT_TRUE(service.launcher.stopped.empty());
}

TEST(RunningJobs, AreStoppedForAHigherOneAlsoWhereTheyCouldDoWithLess) {
  testing::FakeService service(fleet_of({"a", "a", "a"}));
  JobSpec low = job_on(1), high = job_on(1);
  low.devices.count = CountRange{1, 3};
  low.service.preemptible = true;
  low.service.priority = 10;
  high.service.priority = 90;
  const int64_t first = *service.submit(low);
  ASSERT_EQ(service.attempts(first)[0].devices.size(), 3u);
  const int64_t second = *service.submit(high);
  EXPECT_EQ(service.state(first), JobState::kStopping);
  service.end(first, AttemptOutcome::kStopped);
  EXPECT_EQ(service.state(second), JobState::kRunning);
  EXPECT_EQ(service.attempts(first)[1].devices.size(), 2u);
}

TEST(EstimatedStart, IsWhenThoseBeforeItEnd) {
  testing::FakeService service(fleet_of({"a"}));
  ASSERT_TRUE(service.submit(job_on(1)));  // 10 steps of 4 samples at 4 samples a second
  service.pass(4);
  ASSERT_TRUE(service.submit(job_on(1)));
  const int64_t third = *service.submit(job_on(1));
  EXPECT_NEAR(*service.coordinator().why(third)->starts_in, 6 + 10, 1e-6);
}

TEST(EstimatedStart, IsNotKnownBehindAProgramUnlessThatIsLimited) {
  testing::FakeService service(fleet_of({"a"}));
  JobSpec program = job_on(1);
  program.program.command = {"true"};
  const int64_t before = *service.submit(program);
  const int64_t job = *service.submit(job_on(1));
  EXPECT_FALSE(service.coordinator().why(job)->starts_in);
  service.end(before, AttemptOutcome::kDone);
  service.end(job, AttemptOutcome::kDone);

  program.service.max_duration = nanos_of_seconds(100);
  ASSERT_TRUE(service.submit(program));
  service.pass(30);
  EXPECT_NEAR(*service.coordinator().why(*service.submit(job_on(1)))->starts_in, 70, 1e-6);
}

TEST(FairShares, CountADeviceByWhatItIsWorth) {
  testing::FakeService service(fleet_of({"a", "b"}), "fair_share", false);
  for (const std::string type : {"a", "b"})
    service.know_speed(job_on(1), type, type == "a" ? 1 : 10);
  service.restart();
  JobSpec on_a = job_on(1), on_b = job_on(1);
  on_a.devices.types = {"a"};
  on_b.devices.types = {"b"};
  const int64_t slow = *service.submit(on_a, "", false, "ana");
  const int64_t fast = *service.submit(on_b, "", false, "bob");
  service.pass(100);
  service.end(slow, AttemptOutcome::kDone);
  service.end(fast, AttemptOutcome::kDone);
  EXPECT_NEAR(service.attempts(slow).front().worth, 10, 1e-6);
  EXPECT_NEAR(service.attempts(fast).front().worth, 100, 1e-6);
}

}  // namespace
}  // namespace motley
