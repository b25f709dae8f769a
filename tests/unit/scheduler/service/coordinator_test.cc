#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/scheduler/service/fake_service.h"

namespace motley {
namespace {

using ::testing::ElementsAre;
using testing::FakeService;
using testing::fleet_of;
using ::testing::HasSubstr;
using testing::job_on;

TEST(Coordinator, TakesAJobFromItsSubmissionToItsEnd) {
  FakeService service(fleet_of({"a", "a"}));
  const auto id = service.submit(job_on(1));
  ASSERT_TRUE(id) << id.error().message;
  EXPECT_EQ(service.state(*id), JobState::kRunning);
  ASSERT_EQ(service.launcher.orders.size(), 1u);
  EXPECT_EQ(service.launcher.orders[0].fleet.devices.size(), 1u);
  service.end(*id, AttemptOutcome::kDone);
  EXPECT_EQ(service.state(*id), JobState::kSucceeded);
  EXPECT_THAT(service.events(*id), ElementsAre("submitted", "launching attempt 1 on here/0",
                                               "running attempt 1", "succeeded"));
  ASSERT_EQ(service.attempts(*id).size(), 1u);
  EXPECT_EQ(service.attempts(*id)[0].outcome, "done");
  EXPECT_THAT(service.attempts(*id)[0].devices, ElementsAre("here/0"));
}

TEST(Coordinator, ActsOnlyOnWhatIsOnDisk) {
  FakeService service(fleet_of({"a"}));
  bool answered = false;
  service.coordinator().submit({{job_on(1)}, "ana", "", false},
                               [&](Result<int64_t>) { answered = true; });
  EXPECT_FALSE(answered);
  service.coordinator().on_time();
  EXPECT_TRUE(service.launcher.orders.empty());
  service.writer().commit_all();
  EXPECT_TRUE(answered);
  service.coordinator().on_time();  // decides; the decision is not on disk yet
  EXPECT_TRUE(service.launcher.orders.empty());
  service.writer().commit_all();
  EXPECT_EQ(service.launcher.orders.size(), 1u);
}

TEST(Coordinator, ARepeatedKeyIsTheSameJob) {
  FakeService service(fleet_of({"a"}));
  const auto first = service.submit(job_on(1), "key");
  EXPECT_EQ(*service.submit(job_on(1), "key"), *first);
  service.end(*first, AttemptOutcome::kDone);
  EXPECT_EQ(*service.submit(job_on(1), "key"), *first);
  EXPECT_EQ(service.state(*first), JobState::kSucceeded);
  const auto other = service.submit(job_on(1, "other"), "key");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kUsage);
  EXPECT_TRUE(service.submit(job_on(1)));  // and the service goes on
  EXPECT_EQ(service.launcher.orders.size(), 2u);
}

TEST(Coordinator, ARepeatedKeyIsTheSameJobOnASmallerFleet) {
  FakeService service(fleet_of({"a", "a"}));
  const int64_t first = *service.submit(job_on(2), "key");
  service.end(first, AttemptOutcome::kDone);
  service.restart(fleet_of({"a"}));
  const auto again = service.submit(job_on(2), "key");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, first);
  EXPECT_EQ(service.submit(job_on(2, "other"), "key").error().code, ErrorCode::kUsage);
  EXPECT_EQ(service.submit(job_on(2), "new key").error().code, ErrorCode::kNoDevice);
}

TEST(Coordinator, SharesTheFleetAndKeepsToItsOrder) {
  FakeService service(fleet_of({"a", "a", "b"}));
  const int64_t two = *service.submit(job_on(2)), all = *service.submit(job_on(0)),
                one = *service.submit(job_on(1));
  EXPECT_EQ(service.state(two), JobState::kRunning);
  EXPECT_EQ(service.state(all), JobState::kQueued);
  EXPECT_EQ(service.state(one), JobState::kQueued);  // it would put off the job of all three
  const auto why = service.coordinator().why(one);
  ASSERT_TRUE(why);
  EXPECT_EQ(why->position, 2);
  EXPECT_THAT(why->reasons, ::testing::Contains(HasSubstr("kept for job 2")));
  EXPECT_EQ(why->remedy, "motley update 3 --set priority=51");
  EXPECT_EQ(service.coordinator().why(all)->remedy, "the end of job 1");
  service.end(two, AttemptOutcome::kDone);
  EXPECT_EQ(service.state(all), JobState::kRunning);
  EXPECT_EQ(service.launcher.orders.back().fleet.devices.size(), 3u);
  service.end(all, AttemptOutcome::kDone);
  EXPECT_EQ(service.state(one), JobState::kRunning);
}

TEST(Coordinator, RefusesWhatTheFleetCannotDo) {
  FakeService service(fleet_of({"a"}));
  const auto refused = service.submit(job_on(2));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNoDevice);
  JobSpec after = job_on(1);
  after.service.after = {99};
  EXPECT_THAT(service.submit(after).error().message, HasSubstr("there is no job 99"));
}

TEST(Coordinator, HoldsReleasesCancelsAndRequeues) {
  FakeService service(fleet_of({"a"}));
  const int64_t id = *service.submit(job_on(1), "", true);
  EXPECT_EQ(service.state(id), JobState::kWaiting);
  EXPECT_EQ(service.coordinator().why(id)->remedy, "motley release 1");
  ASSERT_TRUE(service.ask(id, JobRequest::kRelease));
  EXPECT_EQ(service.state(id), JobState::kRunning);
  ASSERT_TRUE(service.ask(id, JobRequest::kRequeue));
  EXPECT_EQ(service.state(id), JobState::kStopping);
  EXPECT_EQ(service.launcher.stopped.size(), 1u);
  service.end(id, AttemptOutcome::kStopped);
  EXPECT_EQ(service.state(id), JobState::kRunning);
  EXPECT_EQ(service.status(id).epoch, Epoch(2));
  ASSERT_TRUE(service.ask(id, JobRequest::kCancel));
  service.end(id, AttemptOutcome::kStopped);
  EXPECT_EQ(service.state(id), JobState::kCancelled);
  const auto late = service.ask(id, JobRequest::kCancel);
  ASSERT_FALSE(late);
  EXPECT_THAT(late.error().message, HasSubstr("job 1 has ended: it is cancelled"));
  EXPECT_EQ(service.ask(id, JobRequest::kRelease).error().message,
            "job 1 has ended: it is cancelled");  // nothing to go on from
  EXPECT_EQ(service.launcher.stopped_why,
            (std::vector<StopWhy>{StopWhy::kRequeue, StopWhy::kCancel}));
  EXPECT_EQ(service.ask(7, JobRequest::kHold).error().code, ErrorCode::kNotFound);
}

TEST(Coordinator, WhoDoesNotStopInTimeIsKilled) {
  FakeService service(fleet_of({"a"}));
  const int64_t id = *service.submit(job_on(1));
  ASSERT_TRUE(service.ask(id, JobRequest::kCancel));
  service.pass(119);
  EXPECT_TRUE(service.launcher.killed.empty());
  service.pass(2);
  EXPECT_EQ(service.launcher.killed.size(), 1u);
}

TEST(Coordinator, EachAttemptHasItsTimeToStopIn) {
  FakeService service(fleet_of({"a"}));
  JobSpec spec = job_on(1);
  spec.service.max_duration = nanos_of_seconds(300);
  const int64_t id = *service.submit(spec);
  service.ask(id, JobRequest::kRequeue);
  service.end(id, AttemptOutcome::kStopped);
  service.pass(301);  // longer than the first attempt had to stop in
  ASSERT_EQ(service.state(id), JobState::kStopping);
  EXPECT_EQ(service.launcher.stopped.size(), 2u);
  EXPECT_TRUE(service.launcher.killed.empty());
  service.pass(121);
  EXPECT_EQ(service.launcher.killed.size(), 1u);
}

TEST(Coordinator, AJobWaitsForThoseItComesAfter) {
  FakeService service(fleet_of({"a", "a"}));
  const int64_t first = *service.submit(job_on(1));
  JobSpec spec = job_on(1);
  spec.service.after = {first};
  const int64_t second = *service.submit(spec), third = *service.submit(spec);
  EXPECT_EQ(service.state(second), JobState::kWaiting);
  EXPECT_THAT(service.coordinator().why(second)->reasons,
              ElementsAre("it comes after job 1, which is running"));
  ASSERT_TRUE(service.ask(third, JobRequest::kHold));
  service.end(first, AttemptOutcome::kDone);
  EXPECT_EQ(service.state(second), JobState::kRunning);
  EXPECT_EQ(service.state(third), JobState::kWaiting);
  spec.service.after = {second};
  const int64_t fourth = *service.submit(spec);
  service.end(second, AttemptOutcome::kFailed, true, "diverged");
  EXPECT_EQ(service.state(second), JobState::kFailed);
  EXPECT_EQ(service.state(fourth), JobState::kCancelled);
  const auto never = service.submit(spec);
  ASSERT_FALSE(never);
  EXPECT_EQ(never.error().message, "job 2, which it comes after, has failed");
  spec.service.after = {fourth};
  EXPECT_THAT(service.submit(spec).error().message, HasSubstr("was cancelled"));
}

TEST(Coordinator, ACancelledJobThatHasSavedCanBeGoneOnFrom) {
  FakeService service(fleet_of({"a"}));
  const int64_t id = *service.submit(job_on(1));
  ASSERT_TRUE(service.ask(id, JobRequest::kCancel));
  AttemptOver over{Epoch(1), AttemptOutcome::kStopped, true, false, ""};
  over.saved_step = 5;
  service.coordinator().attempt_over(id, over);
  service.run();
  EXPECT_THAT(service.ask(id, JobRequest::kRelease).error().message, HasSubstr("motley resume 1"));
}

/// A database that was put back knows of fewer attempts than there are directories of.
TEST(Coordinator, AnAttemptIsNeverNumberedAsOneThatHasBeen) {
  FakeService service(fleet_of({"a"}));
  service.launcher.known_attempts = 3;
  const int64_t id = *service.submit(job_on(1));
  EXPECT_EQ(service.launcher.orders.back().id.epoch, Epoch(4));
  service.end_in_vain(id);
  service.pass(1.1);
  EXPECT_EQ(service.launcher.orders.back().id.epoch, Epoch(5));
  EXPECT_EQ(service.attempts(id).size(), 2u);
}

TEST(Coordinator, TimeInWhichNobodySawTheEndIsNotTheJobs) {
  FakeService service(fleet_of({"a"}));
  JobSpec spec = job_on(1);
  spec.service.max_duration = nanos_of_seconds(30);
  const int64_t id = *service.submit(spec);
  service.pass(29);
  AttemptOver over{Epoch(1), AttemptOutcome::kFailed, false, false, "killed"};
  over.ended_ago = nanos_of_seconds(26);
  service.coordinator().attempt_over(id, over);
  service.run();
  EXPECT_EQ(service.attempts(id).back().took, nanos_of_seconds(3));
  service.pass(1.1);  // until it is tried again
  service.pass(26);
  EXPECT_EQ(service.state(id), JobState::kRunning);
  service.pass(2);
  EXPECT_EQ(service.state(id), JobState::kStopping);
}

TEST(Coordinator, AJobThatRunsTooLongFails) {
  FakeService service(fleet_of({"a"}));
  JobSpec spec = job_on(1);
  spec.service.max_duration = nanos_of_seconds(10);
  const int64_t id = *service.submit(spec);
  service.pass(6);
  service.ask(id, JobRequest::kRequeue);
  service.end(id, AttemptOutcome::kStopped);
  service.pass(3);
  EXPECT_EQ(service.state(id), JobState::kRunning);
  service.pass(1.5);
  EXPECT_EQ(service.state(id), JobState::kStopping);
  service.end(id, AttemptOutcome::kStopped);
  EXPECT_EQ(service.state(id), JobState::kFailed);
  EXPECT_EQ(service.status(id).cause, "its longest duration has passed");
}

TEST(Coordinator, AHigherPriorityStopsWhoMayBeStopped) {
  FakeService service(fleet_of({"a"}));
  JobSpec spec = job_on(1);
  spec.service.preemptible = true;
  const int64_t low = *service.submit(spec);
  spec.service.priority = 90;
  const int64_t high = *service.submit(spec);
  EXPECT_EQ(service.state(low), JobState::kStopping);
  EXPECT_EQ(service.state(high), JobState::kQueued);
  service.end(low, AttemptOutcome::kStopped);
  EXPECT_EQ(service.state(high), JobState::kRunning);
  EXPECT_EQ(service.state(low), JobState::kQueued);
}

JobSpec preemptible_job(int devices, int priority) {
  JobSpec spec = job_on(devices);
  spec.service.preemptible = true;
  spec.service.priority = priority;
  return spec;
}

TEST(Coordinator, DevicesThatBecomeFreeForAJobAreNotGivenToLesserOnes) {
  FakeService service(fleet_of({"a", "a"}));
  const int64_t first = *service.submit(preemptible_job(1, 50));
  const int64_t second = *service.submit(preemptible_job(1, 50));
  const int64_t large = *service.submit(preemptible_job(2, 90));
  const int64_t small = *service.submit(preemptible_job(1, 10));
  EXPECT_EQ(service.state(first), JobState::kStopping);
  EXPECT_EQ(service.state(second), JobState::kStopping);
  service.end(first, AttemptOutcome::kStopped);
  for (const int64_t waits : {first, large, small})
    EXPECT_EQ(service.state(waits), JobState::kQueued) << waits;
  service.end(second, AttemptOutcome::kStopped);
  EXPECT_EQ(service.state(large), JobState::kRunning);
  for (const int64_t waits : {first, second, small})
    EXPECT_EQ(service.state(waits), JobState::kQueued) << waits;
}

TEST(Coordinator, FairSharesChangeHandsAfterATurnOfTheirOwn) {
  FakeService service(fleet_of({"a"}), "fair_share");
  const int64_t anas = *service.submit(preemptible_job(1, 50));
  const int64_t bens = *service.submit(preemptible_job(1, 50), "", false, "ben");
  service.pass(30);
  EXPECT_EQ(service.state(anas), JobState::kRunning);
  service.pass(40);
  EXPECT_EQ(service.state(anas), JobState::kStopping);
  service.end(anas, AttemptOutcome::kStopped);
  EXPECT_EQ(service.state(bens), JobState::kRunning);
  // One of a higher priority does not wait for that.
  const int64_t urgent = *service.submit(preemptible_job(1, 90));
  EXPECT_EQ(service.state(bens), JobState::kStopping);
  service.end(bens, AttemptOutcome::kStopped);
  EXPECT_EQ(service.state(urgent), JobState::kRunning);
}

TEST(Coordinator, FairSharesRememberWhatOwnersHadOverRestarts) {
  FakeService service(fleet_of({"a"}), "fair_share");
  const int64_t first = *service.submit(job_on(1), "", false, "ben");
  service.pass(100);
  service.end(first, AttemptOutcome::kDone);
  const int64_t second = *service.submit(job_on(1), "", false, "ana");
  service.pass(30);
  service.restart();
  const int64_t bens = *service.submit(job_on(1), "", false, "ben");
  const int64_t anas = *service.submit(job_on(1), "", false, "ana");
  service.end(second, AttemptOutcome::kDone);
  EXPECT_EQ(service.state(anas), JobState::kRunning);  // 30 seconds against 100
  EXPECT_EQ(service.state(bens), JobState::kQueued);
  // Four weeks later little of it counts.
  service.end(anas, AttemptOutcome::kDone);
  service.end(bens, AttemptOutcome::kDone);
  service.pass(28 * 24 * 3600.0);
  const int64_t new_anas = *service.submit(job_on(1), "", false, "ana");
  service.pass(20);
  const int64_t next_anas = *service.submit(job_on(1), "", false, "ana");
  const int64_t next_bens = *service.submit(job_on(1), "", false, "ben");
  service.end(new_anas, AttemptOutcome::kDone);
  EXPECT_EQ(service.state(next_bens), JobState::kRunning);
  EXPECT_EQ(service.state(next_anas), JobState::kQueued);
}

TEST(Coordinator, AnAttemptThatDiesIsTriedAgainLater) {
  FakeService service(fleet_of({"a"}));
  const int64_t id = *service.submit(job_on(1));
  service.end(id, AttemptOutcome::kFailed, false, "it was killed");
  EXPECT_EQ(service.state(id), JobState::kWaiting);
  service.pass(0.5);
  EXPECT_EQ(service.state(id), JobState::kWaiting);
  service.pass(0.6);
  EXPECT_EQ(service.state(id), JobState::kRunning);
  EXPECT_EQ(service.status(id).epoch, Epoch(2));
  service.coordinator().attempt_over(id, {Epoch(1), AttemptOutcome::kDone, true, false, ""});
  service.run();
  EXPECT_EQ(service.state(id), JobState::kRunning);  // what is said of an older one is not heard
}

TEST(Coordinator, ARestartedOneFindsWhatRuns) {
  FakeService service(fleet_of({"a", "a"}));
  const int64_t running = *service.submit(job_on(1)), stopping = *service.submit(job_on(1)),
                queued = *service.submit(job_on(1));
  ASSERT_TRUE(service.ask(stopping, JobRequest::kHold));
  const auto begun = service.launcher.begun;
  service.restart();
  EXPECT_EQ(service.launcher.begun, begun);  // the same attempts, asked for once more
  EXPECT_EQ(service.launcher.stopped.size(), 2u);
  EXPECT_EQ(service.state(running), JobState::kRunning);
  EXPECT_EQ(service.status(running).restarts, 0);
  EXPECT_EQ(service.state(queued), JobState::kQueued);  // both devices are still held
  service.end(stopping, AttemptOutcome::kStopped);
  EXPECT_EQ(service.state(stopping), JobState::kWaiting);
  EXPECT_EQ(service.state(queued), JobState::kRunning);
}

/// At whichever commit the coordinator is killed: what was acknowledged is there, and no attempt is
/// begun that is not on disk.
TEST(Coordinator, LosesNothingAcknowledgedInAKill) {
  for (int lost = 0; lost < 4; ++lost) {
    FakeService service(fleet_of({"a"}));
    std::vector<int64_t> acknowledged;
    for (int i = 0; i < 4; ++i) {
      service.coordinator().submit({{job_on(1)}, "ana", std::to_string(i), false},
                                   [&](Result<int64_t> id) { acknowledged.push_back(*id); });
      if (i < lost) service.run();
    }
    service.restart();
    EXPECT_EQ(acknowledged.size(), static_cast<size_t>(lost));
    for (const int64_t id : acknowledged)
      EXPECT_EQ(service.state(id), id == 1 ? JobState::kRunning : JobState::kQueued);
    for (const AttemptOrder& order : service.launcher.orders)
      EXPECT_FALSE(service.attempts(order.id.job).empty());
    EXPECT_EQ(*service.submit(job_on(1), "0"), 1);
  }
}

TEST(Coordinator, ActsOnNothingWhileItCannotWriteAndGoesOnAfterwards) {
  FakeService service(fleet_of({"a", "a"}));
  const int64_t running = *service.submit(job_on(1)), held = *service.submit(job_on(1), "", true);
  service.writer().fail_all(Error{ErrorCode::kIo, "disk full", {}});
  const auto refused = service.ask(running, JobRequest::kCancel);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kIo);
  EXPECT_THAT(refused.error().message, HasSubstr("disk full"));
  ASSERT_TRUE(service.coordinator().broken());
  EXPECT_FALSE(service.submit(job_on(1), "key"));
  EXPECT_FALSE(service.ask(held, JobRequest::kRelease));
  service.pass(5);
  EXPECT_TRUE(service.coordinator().broken());
  EXPECT_TRUE(service.launcher.stopped.empty());
  EXPECT_EQ(service.launcher.orders.size(), 1u);

  service.writer().fail_all(std::nullopt);
  EXPECT_TRUE(service.coordinator().next_wake());
  service.pass(1);
  EXPECT_FALSE(service.coordinator().broken());
  EXPECT_EQ(service.state(running), JobState::kRunning);
  EXPECT_EQ(service.state(held), JobState::kWaiting);
  EXPECT_EQ(service.coordinator().running(), 1);
  ASSERT_TRUE(service.ask(running, JobRequest::kCancel));
  EXPECT_EQ(service.launcher.stopped.size(), 1u);
  ASSERT_TRUE(service.ask(held, JobRequest::kRelease));
  EXPECT_EQ(service.state(held), JobState::kRunning);
  EXPECT_EQ(*service.submit(job_on(1), "key"), 3);
  const auto& jobs = service.coordinator().counters().jobs;
  EXPECT_EQ(jobs.at(JobState::kQueued), 1);
}

/// A submission fails, what was handed in beside it does not: both are as the disk has them.
TEST(Coordinator, WhatWasKeptBesideAFailureIsGoneOnWith) {
  FakeService service(fleet_of({"a", "a"}));
  service.writer().fail_next({ErrorCode::kIo, "disk full", {}});
  std::vector<bool> answers;
  for (int i = 0; i < 2; ++i)
    service.coordinator().submit({{job_on(1)}, "ana", std::to_string(i), false},
                                 [&](const Result<int64_t>& id) { answers.push_back(bool(id)); });
  service.run();
  EXPECT_THAT(answers, ElementsAre(false, true));
  service.pass(1);
  EXPECT_FALSE(service.coordinator().broken());
  EXPECT_EQ(service.state(1), JobState::kRunning);
  EXPECT_EQ(*service.submit(job_on(1), "1"), 1);
  EXPECT_EQ(*service.submit(job_on(1), "0"), 2);
}

TEST(Coordinator, AJobThatCameAfterOneThatIsForgottenStarts) {
  FakeService service(fleet_of({"a", "a"}));
  const int64_t first = *service.submit(job_on(1)), second = *service.submit(job_on(1));
  JobSpec spec = job_on(1);
  spec.service.after = {first, second};
  const int64_t third = *service.submit(spec);
  service.end(first, AttemptOutcome::kDone);
  service.writer().write([first](Database& database) { return remove_job(database, first); },
                         [](const Result<Unit>& removed) { EXPECT_TRUE(removed); });
  service.run();
  service.restart();
  EXPECT_EQ(service.state(third), JobState::kWaiting);
  service.end(second, AttemptOutcome::kDone);
  EXPECT_EQ(service.state(third), JobState::kRunning);
}

}  // namespace
}  // namespace motley
