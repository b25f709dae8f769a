// A job whose devices turn out to be too small, or of a kind that cannot be measured, gets others.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/scheduler/service/fake_service.h"

namespace motley {
namespace {

using testing::fleet_of;
using ::testing::HasSubstr;
using testing::job_on;
using Ids = std::vector<std::string>;

JobSpec job_on_up_to(int most) {
  JobSpec job = job_on(1);
  job.devices.count = CountRange{1, most};
  return job;
}

class Elsewhere : public ::testing::Test {
 protected:
  static testing::FakeService service_of(std::vector<std::string> types, bool measured) {
    return testing::FakeService(fleet_of(types), "backfill", measured);
  }
  static Ids newest(const testing::FakeService& service) {
    Ids ids;
    for (const DeviceSpec& device : service.launcher.orders.back().fleet.devices)
      ids.push_back(device.id);
    return ids;
  }
  /// The attempt under way finds no plan on what it was given, or cannot measure it.
  static void fails(testing::FakeService& service, int64_t job, const std::string& cause,
                    bool hopeless = true) {
    AttemptOver over{.epoch = service.status(job).epoch, .cause = cause};
    over.hopeless = over.elsewhere = hopeless;
    service.launcher.begun.erase({job, over.epoch});
    service.coordinator().attempt_over(job, over);
    service.run();
  }
};

TEST_F(Elsewhere, WhatIsTooSmallIsNotGivenAgain) {
  auto service = service_of({"a", "b"}, true);
  const int64_t job = *service.submit(job_on(1));
  const Ids first = newest(service);
  fails(service, job, "it needs 9 GB");
  EXPECT_EQ(service.state(job), JobState::kRunning);
  EXPECT_NE(newest(service), first);
  EXPECT_EQ(service.status(job).restarts, 0);
  fails(service, job, "it needs 9 GB");
  EXPECT_EQ(service.state(job), JobState::kFailed);
  EXPECT_EQ(service.status(job).cause, "it needs 9 GB");
}

/// The program itself, as far as it can tell.
void fails_on_its_device(testing::FakeService& service, int64_t job) {
  service.end(job, AttemptOutcome::kFailed, true, "no more luck");
}

TEST_F(Elsewhere, WhatFailsWhereTheJobBeforeHasFailedIsTriedOnAnotherDeviceOnce) {
  auto service = service_of({"a", "a"}, true);
  const int64_t first = *service.submit(job_on(1));
  ASSERT_EQ(newest(service), Ids{"here/0"});
  fails_on_its_device(service, first);
  EXPECT_EQ(service.state(first), JobState::kFailed);
  const int64_t second = *service.submit(job_on(1));
  EXPECT_EQ(newest(service), Ids{"here/1"});  // on which nothing has failed
  const int64_t third = *service.submit(job_on(1));
  ASSERT_EQ(newest(service), Ids{"here/0"});
  fails_on_its_device(service, third);
  EXPECT_EQ(service.state(third), JobState::kQueued);  // for the other device
  service.end(second, AttemptOutcome::kDone);
  ASSERT_EQ(newest(service), Ids{"here/1"});
  EXPECT_EQ(service.state(third), JobState::kRunning);
  EXPECT_EQ(service.status(third).restarts, 0);
  fails_on_its_device(service, third);
  EXPECT_EQ(service.state(third), JobState::kFailed);  // it was the job
}

TEST_F(Elsewhere, ADeviceOnWhichSomethingHasEndedWellIsAboveSuspicion) {
  auto service = service_of({"a", "a"}, true);
  fails_on_its_device(service, *service.submit(job_on(1)));
  service.end(*service.submit(job_on(2)), AttemptOutcome::kDone);
  const int64_t job = *service.submit(job_on(1));
  ASSERT_EQ(newest(service), Ids{"here/0"});
  fails_on_its_device(service, job);
  EXPECT_EQ(service.state(job), JobState::kFailed);
}

TEST_F(Elsewhere, WhoWantsNoRestartGetsNone) {
  auto service = service_of({"a"}, true);
  JobSpec spec = job_on(1);
  spec.retry.max_restarts = 0;
  for (int i = 0; i < 2; ++i) {
    const int64_t job = *service.submit(spec);
    fails_on_its_device(service, job);
    EXPECT_EQ(service.state(job), JobState::kFailed);
  }
}

TEST_F(Elsewhere, MoreOfThemMayDo) {
  auto service = service_of({"a", "a", "b"}, true);
  const JobSpec other = job_on(1);
  JobSpec job = job_on_up_to(2);
  job.devices.types = {"a"};
  const int64_t holder = *service.submit(other);
  ASSERT_EQ(newest(service), Ids{"here/0"});
  const int64_t id = *service.submit(job);
  ASSERT_EQ(newest(service), Ids{"here/1"});
  fails(service, id, "it needs 9 GB");
  EXPECT_EQ(service.state(id), JobState::kQueued);
  EXPECT_THAT(service.coordinator().why(id)->reasons.front(), HasSubstr("found no plan"));
  service.end(holder, AttemptOutcome::kDone);
  EXPECT_EQ(newest(service), (Ids{"here/0", "here/1"}));
}

TEST_F(Elsewhere, WhereAllWereTooLittleFewerAreNotTried) {
  auto service = service_of({"a", "b"}, true);
  const int64_t job = *service.submit(job_on_up_to(2));
  ASSERT_EQ(newest(service), (Ids{"here/0", "here/1"}));
  fails(service, job, "it needs 9 GB");
  EXPECT_EQ(service.state(job), JobState::kFailed);
}

TEST_F(Elsewhere, AMixOfThemMayDo) {
  auto service = service_of({"a", "b"}, true);
  const int64_t holder = *service.submit(job_on(1));
  const int64_t job = *service.submit(job_on_up_to(2));
  ASSERT_EQ(newest(service), Ids{"here/1"});
  fails(service, job, "it needs 9 GB");
  ASSERT_EQ(service.state(job), JobState::kQueued);
  service.end(holder, AttemptOutcome::kDone);
  EXPECT_EQ(newest(service), (Ids{"here/0", "here/1"}));
}

TEST_F(Elsewhere, AMixOfAsManyMayDo) {
  auto service = service_of({"a", "b", "b"}, false);
  service.know_speed(job_on(1), "a", 4);
  service.know_speed(job_on(1), "b", 8);
  const int64_t job = *service.submit(job_on(2));
  ASSERT_EQ(newest(service), (Ids{"here/1", "here/2"}));
  fails(service, job, "it needs 9 GB");
  ASSERT_EQ(newest(service), (Ids{"here/0", "here/1"}));
  fails(service, job, "it needs 9 GB");
  EXPECT_EQ(service.state(job), JobState::kFailed);
}

TEST_F(Elsewhere, AskedForAgainItIsTriedAgain) {
  auto service = service_of({"a", "a"}, true);
  const int64_t holder = *service.submit(job_on(1));
  const int64_t job = *service.submit(job_on_up_to(2));
  fails(service, job, "it needs 9 GB");
  ASSERT_EQ(service.state(job), JobState::kQueued);
  ASSERT_TRUE(service.ask(job, JobRequest::kRequeue));
  EXPECT_EQ(service.state(job), JobState::kRunning);
  EXPECT_EQ(service.state(holder), JobState::kRunning);
}

TEST_F(Elsewhere, AKindThatCannotBeMeasuredIsPassedOver) {
  auto service = service_of({"a", "b"}, false);
  const int64_t job = *service.submit(job_on(1));
  ASSERT_EQ(newest(service), (Ids{"here/0", "here/1"}));
  fails(service, job, "one has no such kernel");
  ASSERT_EQ(newest(service), Ids{"here/0"});
  ASSERT_EQ(service.state(job), JobState::kProfiling);
  fails(service, job, "a has no such kernel");
  ASSERT_EQ(newest(service), Ids{"here/1"});
  ASSERT_EQ(service.state(job), JobState::kProfiling);
  service.measured(job, {{"here/1", 40}});
  EXPECT_EQ(service.state(job), JobState::kRunning);
  EXPECT_EQ(newest(service), Ids{"here/1"});
}

TEST_F(Elsewhere, WhatMayPassIsWaitedForTwice) {
  auto service = service_of({"a", "b"}, false);
  const int64_t job = *service.submit(job_on(1));
  fails(service, job, "no answer", false);
  ASSERT_EQ(service.state(job), JobState::kWaiting);
  service.pass(2);
  ASSERT_EQ(newest(service), Ids{"here/0"});
  fails(service, job, "no answer", false);
  ASSERT_EQ(service.state(job), JobState::kWaiting);
  service.pass(4);
  ASSERT_EQ(newest(service), Ids{"here/0"});
  fails(service, job, "no answer", false);
  EXPECT_EQ(service.state(job), JobState::kProfiling);
  EXPECT_EQ(newest(service), Ids{"here/1"});
}

TEST_F(Elsewhere, WhereNoneCanBeMeasuredItFails) {
  auto service = service_of({"a", "b"}, false);
  const int64_t job = *service.submit(job_on(1));
  for (int i = 0; i < 3; ++i) fails(service, job, "no such kernel");
  EXPECT_EQ(service.state(job), JobState::kFailed);
  EXPECT_EQ(service.status(job).cause, "no such kernel");
}

TEST_F(Elsewhere, ToBeMeasuredCostsNoneOfItsTime) {
  auto service = service_of({"a"}, false);
  JobSpec spec = job_on(1);
  spec.service.max_duration = nanos_of_seconds(100);
  const int64_t job = *service.submit(spec);
  service.pass(150);
  ASSERT_EQ(service.state(job), JobState::kProfiling);
  fails(service, job, "no answer", false);
  service.pass(2);
  ASSERT_EQ(service.state(job), JobState::kProfiling);
  service.measured(job, {{"here/0", 10}});
  service.pass(90);
  EXPECT_TRUE(service.launcher.stopped.empty());
  service.restart();  // its attempt says that it begins now
  service.pass(90);
  EXPECT_TRUE(service.launcher.stopped.empty());
  service.pass(11);
  EXPECT_FALSE(service.launcher.stopped.empty());
}

}  // namespace
}  // namespace motley
