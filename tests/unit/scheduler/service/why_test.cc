// What a job that waits is told would start it, does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/scheduler/service/fake_service.h"

namespace motley::testing {
namespace {

using ::testing::Contains;

JobSpec preemptible_on(int devices) {
  JobSpec job = job_on(devices);
  job.service.preemptible = true;
  return job;
}

std::string remedy_of(FakeService& service, int64_t job) {
  return service.coordinator().why(job)->remedy;
}

TEST(Why, BehindOthersItIsItsPlaceThatMatters) {
  FakeService service(fleet_of({"a", "a", "a", "a"}));
  const int64_t running = *service.submit(job_on(4));
  ASSERT_TRUE(service.submit(job_on(2)));
  ASSERT_TRUE(service.submit(job_on(2)));
  const int64_t last = *service.submit(job_on(2));
  EXPECT_EQ(remedy_of(service, last), "motley update 4 --set priority=51, then the end of job 1");
  ASSERT_TRUE(service.update(last, {{"priority", "51"}}));
  service.end(running, AttemptOutcome::kDone);
  EXPECT_EQ(service.state(last), JobState::kRunning);
}

TEST(Why, OneThatMayBeStoppedGivesWayToAHigherPriority) {
  FakeService service(fleet_of({"a", "a"}));
  ASSERT_TRUE(service.submit(preemptible_on(2)));
  const int64_t other = *service.submit(job_on(2));
  EXPECT_EQ(remedy_of(service, other), "the end of job 1, or motley update 2 --set priority=51");
  ASSERT_TRUE(service.update(other, {{"priority", "51"}}));
  EXPECT_EQ(service.state(1), JobState::kStopping);
  service.end(1, AttemptOutcome::kStopped);
  EXPECT_EQ(service.state(other), JobState::kRunning);
}

TEST(Why, ANodeAndThoseThatHoldTheRest) {
  FakeService service{FleetSpec()};
  service.come("n1", {"a"});
  service.come("n2", {"a"});
  service.come("n3", {"a"});
  ASSERT_TRUE(service.drain("n1"));
  const int64_t second = *service.submit(job_on(1)), third = *service.submit(job_on(1));
  const int64_t all = *service.submit(job_on(3));
  EXPECT_EQ(remedy_of(service, all), "motley undrain n1, then the end of jobs 1 and 2");
  EXPECT_THAT(service.coordinator().why(all)->reasons, Contains("job 1 holds n2/0"));
  ASSERT_TRUE(service.undrain("n1"));
  service.end(second, AttemptOutcome::kDone);
  service.end(third, AttemptOutcome::kDone);
  EXPECT_EQ(service.state(all), JobState::kRunning);
}

TEST(Why, AllThatItComesAfter) {
  FakeService service(fleet_of({"a"}));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(service.submit(job_on(1)));
  JobSpec after = job_on(1);
  after.service.after = {1, 2, 3};
  EXPECT_EQ(remedy_of(service, *service.submit(after)), "the end of jobs 1, 2 and 3");
}

}  // namespace
}  // namespace motley::testing
