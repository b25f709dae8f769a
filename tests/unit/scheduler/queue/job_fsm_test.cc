#include "scheduler/queue/job_fsm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace motley {
namespace {

constexpr Nanos kSecond{1'000'000'000};

/// A job under a clock moved by hand; what it is given and what runs is counted.
class Job {
 public:
  explicit Job(RetryRule retry = {}) : fsm_(retry) {}

  void on(const JobEvent& event) {
    const JobState before = state();
    for (const JobAction& action : fsm_.on(event, now_)) {
      if (const auto* launch = std::get_if<LaunchAttempt>(&action))
        launched_.push_back(launch->epoch);
      if (std::holds_alternative<StopAttempt>(action)) ++stops_;
      if (std::holds_alternative<FreeDevices>(action)) --given_;
      if (const auto* wake = std::get_if<WakeAt>(&action)) wake_ = wake->when;
    }
    if (before == JobState::kQueued &&
        (state() == JobState::kPlanning || state() == JobState::kProfiling))
      ++given_;
  }
  void start() {
    on(DevicesGiven{});
    on(PlanEnded{});
    on(LaunchedAttempt{epoch()});
  }
  void end(AttemptOutcome outcome, bool progressed = true) {
    on(AttemptOver{epoch(), outcome, progressed, false, "rank 1 died"});
  }
  void pass(Nanos time) { now_ += time; }

  JobState state() const { return fsm_.status().state; }
  Epoch epoch() const { return fsm_.status().epoch; }
  const JobStatus& status() const { return fsm_.status(); }
  int given() const { return given_; }  ///< 1 while it has devices
  int stops() const { return stops_; }
  Nanos wake() const { return wake_; }
  Nanos now() const { return now_; }
  const std::vector<Epoch>& launched() const { return launched_; }

 private:
  JobFsm fsm_;
  Nanos now_{0};
  int given_ = 0, stops_ = 0;
  Nanos wake_{0};
  std::vector<Epoch> launched_;
};

TEST(JobFsm, RunsToItsEnd) {
  Job job;
  job.on(DevicesGiven{});
  EXPECT_EQ(job.state(), JobState::kPlanning);
  job.on(PlanEnded{});
  EXPECT_EQ(job.state(), JobState::kLaunching);
  EXPECT_EQ(job.epoch(), Epoch(1));
  job.on(LaunchedAttempt{Epoch(1)});
  EXPECT_EQ(job.state(), JobState::kRunning);
  job.end(AttemptOutcome::kDone);
  EXPECT_EQ(job.state(), JobState::kSucceeded);
  EXPECT_EQ(job.given(), 0);
}

TEST(JobFsm, IsMeasuredFirstAndThenWaitsForItsTurn) {
  Job job;
  job.on(DevicesGiven{.to_measure = true});
  EXPECT_EQ(job.state(), JobState::kProfiling);
  EXPECT_EQ(job.launched(), std::vector<Epoch>{Epoch(1)});
  job.on(LaunchedAttempt{Epoch(1)});
  EXPECT_EQ(job.state(), JobState::kProfiling);
  job.end(AttemptOutcome::kDone);
  EXPECT_EQ(job.state(), JobState::kQueued);
  EXPECT_EQ(job.given(), 0);
  job.start();
  EXPECT_EQ(job.epoch(), Epoch(2));
  job.end(AttemptOutcome::kDone);
  EXPECT_EQ(job.state(), JobState::kSucceeded);
}

TEST(JobFsm, StoppedWhileItIsMeasuredItIsNotDone) {
  for (const bool in_time : {false, true}) {
    Job job;
    job.on(DevicesGiven{.to_measure = true});
    job.on(NodeDrained{});
    EXPECT_EQ(job.state(), JobState::kStopping);
    job.end(in_time ? AttemptOutcome::kDone : AttemptOutcome::kStopped);
    EXPECT_EQ(job.state(), JobState::kQueued);
    job.on(DevicesGiven{.to_measure = true});
    job.on(CancelAsked{});
    job.end(in_time ? AttemptOutcome::kDone : AttemptOutcome::kStopped);
    EXPECT_EQ(job.state(), JobState::kCancelled);
  }
}

TEST(JobFsm, WhatCannotBeMeasuredIsTriedAgainAndThenFails) {
  Job job;
  for (int i = 0; i < 3; ++i) {
    job.on(BackOffIsOver{});
    job.on(DevicesGiven{.to_measure = true});
    ASSERT_EQ(job.state(), JobState::kProfiling);
    job.end(AttemptOutcome::kFailed, false);
    job.pass(kSecond * 60);
  }
  EXPECT_EQ(job.state(), JobState::kFailed);
}

TEST(JobFsm, WhatIsSaidOfAnOlderAttemptChangesNothing) {
  Job job;
  job.start();
  job.on(Preempted{});
  job.end(AttemptOutcome::kStopped);
  job.start();
  ASSERT_EQ(job.epoch(), Epoch(2));
  job.on(AttemptOver{Epoch(1), AttemptOutcome::kDone, true, false, ""});
  EXPECT_EQ(job.state(), JobState::kRunning);
}

TEST(JobFsm, PreemptedItGoesOnLater) {
  Job job;
  job.start();
  job.on(Preempted{});
  EXPECT_EQ(job.state(), JobState::kStopping);
  EXPECT_EQ(job.stops(), 1);
  job.end(AttemptOutcome::kStopped);
  EXPECT_EQ(job.state(), JobState::kQueued);
  EXPECT_EQ(job.status().restarts, 0);
}

TEST(JobFsm, StoppedUnaskedItWaitsBeforeItGoesOn) {
  Job job;
  job.start();
  job.end(AttemptOutcome::kStopped);
  EXPECT_EQ(job.state(), JobState::kWaiting);
  EXPECT_EQ(job.status().not_before, Nanos(1'000'000'000));
  EXPECT_EQ(job.status().restarts, 0);  // it had got on
}

TEST(JobFsm, CancelWinsOverWhatItWasStoppedFor) {
  Job job;
  job.start();
  job.on(Preempted{});
  job.on(CancelAsked{});
  EXPECT_EQ(job.stops(), 1);
  job.end(AttemptOutcome::kStopped);
  EXPECT_EQ(job.state(), JobState::kCancelled);
  job.on(RequeueAsked{});
  EXPECT_EQ(job.state(), JobState::kCancelled);
}

TEST(JobFsm, DoneBeforeTheCancelArrivedIsDone) {
  Job job;
  job.start();
  job.on(CancelAsked{});
  job.end(AttemptOutcome::kDone);
  EXPECT_EQ(job.state(), JobState::kSucceeded);
}

TEST(JobFsm, HeldItWaitsUntilReleased) {
  Job job;
  job.start();
  job.on(HoldAsked{});
  job.end(AttemptOutcome::kStopped);
  EXPECT_EQ(job.state(), JobState::kWaiting);
  job.on(DevicesGiven{});
  EXPECT_EQ(job.state(), JobState::kWaiting);
  job.on(ReleaseAsked{});
  EXPECT_EQ(job.state(), JobState::kQueued);
}

TEST(JobFsm, WaitsForOthersAndEndsWithThem) {
  Job job;
  job.on(DependenciesLeft{2, {}});
  EXPECT_EQ(job.state(), JobState::kWaiting);
  job.on(DependenciesLeft{0, {}});
  EXPECT_EQ(job.state(), JobState::kQueued);
  Job other;
  other.on(DependenciesLeft{1, "job 7 has failed"});
  EXPECT_EQ(other.state(), JobState::kCancelled);
}

TEST(JobFsm, BacksOffTwiceAsLongEachTime) {
  Job job({.most_restarts = 4, .most_in_vain = 9, .longest_wait = kSecond * 4});
  for (const int seconds : {1, 2, 4, 4}) {
    job.start();
    job.end(AttemptOutcome::kFailed);
    ASSERT_EQ(job.state(), JobState::kWaiting);
    EXPECT_EQ(job.wake() - job.now(), kSecond * seconds);
    job.pass(kSecond * seconds);
    job.on(BackOffIsOver{});
    ASSERT_EQ(job.state(), JobState::kQueued);
  }
  job.start();
  job.end(AttemptOutcome::kFailed);
  EXPECT_EQ(job.state(), JobState::kFailed);
  EXPECT_EQ(job.status().cause, "rank 1 died");
}

TEST(JobFsm, GivesUpSoonerWhereNothingGetsAnywhere) {
  Job job({.most_restarts = 100, .most_in_vain = 2});
  const auto fail = [&](bool progressed) {
    job.start();
    job.end(AttemptOutcome::kFailed, progressed);
    job.pass(kSecond * 100);
    job.on(BackOffIsOver{});
  };
  fail(false);
  fail(true);
  fail(false);
  EXPECT_EQ(job.state(), JobState::kQueued);
  fail(false);
  EXPECT_EQ(job.state(), JobState::kFailed);
}

TEST(JobFsm, WhatNobodyIsToBlameForCostsNoRestart) {
  Job job({.most_restarts = 1, .most_in_vain = 2});
  std::vector<Nanos> waited;
  const auto set_back = [&](bool progressed) {
    job.start();
    job.on(AttemptOver{job.epoch(), AttemptOutcome::kFailed, progressed, true, "the disk is full",
                       true});
    ASSERT_EQ(job.state(), JobState::kWaiting);
    const Nanos wait = job.wake() - job.now();
    job.pass(wait);
    job.on(BackOffIsOver{});
    waited.push_back(wait);
  };
  for (int i = 0; i < 8; ++i) set_back(false);
  set_back(true);
  set_back(false);
  EXPECT_THAT(waited, ::testing::ElementsAre(kSecond, kSecond * 2, kSecond * 4, kSecond * 8,
                                             kSecond * 16, kSecond * 32, kSecond * 60, kSecond * 60,
                                             kSecond, kSecond * 2));
  EXPECT_EQ(job.status().restarts + job.status().in_vain, 0);
  job.start();
  job.on(CancelAsked{});
  job.on(AttemptOver{job.epoch(), AttemptOutcome::kFailed, false, false, "killed", true});
  EXPECT_EQ(job.state(), JobState::kCancelled);
}

TEST(JobFsm, APlanThatNeverFitsEndsIt) {
  Job job;
  job.on(DevicesGiven{});
  job.on(PlanEnded{"no device holds it", true});
  EXPECT_EQ(job.state(), JobState::kFailed);
  EXPECT_EQ(job.given(), 0);
}

/// Whatever happens in whatever order: devices are held exactly where something is done with them,
/// epochs only rise, the end is the end.
TEST(JobFsm, AnyEventsInAnyOrder) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    Job job({.most_restarts = 3});
    for (int i = 0; i < 60; ++i) {
      const JobState before = job.state();
      const size_t launched = job.launched().size();
      const auto flag = [&] { return random() % 2 == 0; };
      const Epoch epoch(static_cast<int>(random() % 2 == 0 ? job.epoch().value() : random() % 3));
      const JobEvent events[] = {
          DependenciesLeft{static_cast<int>(random() % 2), random() % 20 == 0 ? "it failed" : ""},
          HoldAsked{},
          ReleaseAsked{},
          ReleaseAsked{},
          random() % 20 == 0 ? JobEvent(CancelAsked{}) : JobEvent(RequeueAsked{}),
          DevicesGiven{flag()},
          DevicesGiven{},
          Preempted{},
          PlanEnded{},
          PlanEnded{"busy", random() % 9 == 0},
          LaunchedAttempt{epoch},
          BackOffIsOver{},
          AttemptOver{epoch, static_cast<AttemptOutcome>(random() % 3), flag(), random() % 20 == 0,
                      "x", flag()}};
      job.on(events[random() % std::size(events)]);
      job.pass(kSecond * static_cast<int>(random() % 3));
      const bool busy = job.state() >= JobState::kProfiling && !is_final(job.state());
      ASSERT_EQ(job.given(), busy ? 1 : 0) << "seed " << seed << ", event " << i;
      if (is_final(before)) {
        ASSERT_EQ(job.state(), before);
        ASSERT_EQ(job.launched().size(), launched);
      }
    }
    ASSERT_TRUE(std::is_sorted(job.launched().begin(), job.launched().end()));
    ASSERT_EQ(std::adjacent_find(job.launched().begin(), job.launched().end()),
              job.launched().end());
  }
}

}  // namespace
}  // namespace motley
