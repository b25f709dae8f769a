#include "scheduler/run/retry_policy.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

FailedAttempt failed(int64_t step, const std::string& device = "",
                     ErrorCode code = ErrorCode::kRunFailed) {
  return {.error = {code, "it failed", {}}, .device = device, .step_reached = step};
}

RetrySpec spec(int max_restarts) {
  RetrySpec retry;
  retry.max_restarts = max_restarts;
  return retry;
}

TEST(RetryPolicy, RestartsAtOnceAfterProgress) {
  RetryPolicy policy(spec(5), 0);
  const RetryDecision decision = policy.after(failed(10));
  EXPECT_TRUE(decision.again);
  EXPECT_EQ(decision.wait, Nanos(0));
  EXPECT_EQ(policy.restarts(), 1);
}

TEST(RetryPolicy, WaitsLongerAndLongerWithoutProgressThenGivesUp) {
  RetryPolicy policy(spec(50), 10);
  EXPECT_EQ(policy.after(failed(10)).wait, nanos_of_seconds(1));
  EXPECT_EQ(policy.after(failed(7)).wait, nanos_of_seconds(2));
  const RetryDecision third = policy.after(failed(10));
  EXPECT_FALSE(third.again);
  EXPECT_EQ(third.why_not, "given up after 3 attempts without progress");
}

TEST(RetryPolicy, ACrashLoopGoesBackToAnOlderCheckpointOnce) {
  RetryPolicy policy(spec(50), 10);
  FailedAttempt diverged = failed(10, "", ErrorCode::kDiverged);
  diverged.older_checkpoint = true;
  EXPECT_FALSE(policy.after(diverged).go_back);
  EXPECT_FALSE(policy.after(diverged).go_back);
  const RetryDecision third = policy.after(diverged);
  EXPECT_TRUE(third.again);
  EXPECT_TRUE(third.go_back);
  EXPECT_EQ(third.wait, nanos_of_seconds(4));
  const RetryDecision fourth = policy.after(diverged);
  EXPECT_FALSE(fourth.again);
  EXPECT_EQ(fourth.why_not, "given up after 4 attempts without progress");
}

TEST(RetryPolicy, TrainsNothingAgainForACheckpointThatFoundNoRoom) {
  RetryPolicy policy(spec(50), 0);
  FailedAttempt full = failed(40, "", ErrorCode::kIo);
  EXPECT_TRUE(policy.after(full).again);
  full.all_steps_done = true;
  EXPECT_FALSE(policy.after(full).again);
}

TEST(RetryPolicy, CheckpointsThatCannotBeReadAreNoReasonToTryAgain) {
  EXPECT_FALSE(RetryPolicy(spec(50), 0).after(failed(40, "", ErrorCode::kCorrupt)).again);
}

TEST(RetryPolicy, ProgressForgivesEarlierFailures) {
  RetryPolicy policy(spec(50), 0);
  for (int64_t step = 1; step < 20; ++step) {
    EXPECT_TRUE(policy.after(failed(step)).again);
    EXPECT_TRUE(policy.after(failed(step)).again);
  }
}

TEST(RetryPolicy, StopsAfterTheRestartsAllowed) {
  RetryPolicy policy(spec(2), 0);
  EXPECT_TRUE(policy.after(failed(1)).again);
  EXPECT_TRUE(policy.after(failed(2)).again);
  const RetryDecision last = policy.after(failed(3));
  EXPECT_FALSE(last.again);
  EXPECT_EQ(last.why_not, "given up after 2 restarts");
  EXPECT_EQ(policy.restarts(), 2);
}

TEST(RetryPolicy, NoRestartAllowedNeedsNoExplanation) {
  RetryPolicy policy(spec(0), 0);
  const RetryDecision decision = policy.after(failed(3));
  EXPECT_FALSE(decision.again);
  EXPECT_EQ(decision.why_not, "");
}

TEST(RetryPolicy, WhatAnotherAttemptWouldRepeatIsFinal) {
  for (const ErrorCode code : {ErrorCode::kInvalidSpec, ErrorCode::kNotFound,
                               ErrorCode::kBrokenInstall, ErrorCode::kUnsupported}) {
    RetryPolicy policy(spec(5), 0);
    EXPECT_FALSE(policy.after(failed(3, "", code)).again);
  }
}

TEST(RetryPolicy, ADeviceThatFailsTwiceRunningIsLeftOut) {
  RetryPolicy policy(spec(9), 0);
  EXPECT_EQ(policy.after(failed(1, "a/0")).exclude, "");
  EXPECT_EQ(policy.after(failed(2, "a/1")).exclude, "");
  EXPECT_EQ(policy.after(failed(3, "a/0")).exclude, "");
  EXPECT_EQ(policy.after(failed(4, "a/0")).exclude, "a/0");
}

TEST(RetryPolicy, KeepsFailingDevicesWhereTheJobSaysSo) {
  RetrySpec keep = spec(9);
  keep.exclude_failed_devices = false;
  RetryPolicy policy(keep, 0);
  policy.after(failed(1, "a/0"));
  EXPECT_EQ(policy.after(failed(2, "a/0")).exclude, "");
}

TEST(RetryPolicy, AnUnknownCulpritExcludesNobody) {
  RetryPolicy policy(spec(9), 0);
  policy.after(failed(1));
  EXPECT_EQ(policy.after(failed(2)).exclude, "");
}

}  // namespace
}  // namespace motley
