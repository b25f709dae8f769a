// What still runs of attempts that are over, or that nobody knows of: whose devices are given to
// nobody.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "scheduler/service/node_json.h"
#include "tests/unit/scheduler/service/fake_service.h"

namespace motley {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FakeService;
using testing::fleet_of;
using ::testing::IsEmpty;
using testing::job_on;

std::vector<std::string> texts_of(const FakeService& service) {
  std::vector<std::string> texts;
  const auto events = list_events(service.database(), 0, 0, 1000);
  for (const StoredEvent& event : *events) texts.push_back(event.text);
  return texts;
}

void end_uncleanly(FakeService& service, int64_t job) {
  AttemptOver over{service.status(job).epoch, AttemptOutcome::kFailed, false, false, "killed"};
  over.unclean = true;
  service.coordinator().attempt_over(job, over);
  service.run();
}

void gone(FakeService& service, AttemptId id) {
  service.coordinator().attempt_gone(id);
  service.run();
}

TEST(Leftovers, DevicesAreClosedUntilTheLastProcessHasEnded) {
  FakeService service(fleet_of({"a", "a"}));
  const int64_t first = *service.submit(job_on(1)), second = *service.submit(job_on(2));
  end_uncleanly(service, first);
  const AttemptId left{first, Epoch(1)};
  EXPECT_TRUE(service.launcher.killed.empty());
  service.pass(10.1);
  EXPECT_THAT(service.launcher.killed, ElementsAre(left));
  // Neither the job itself, whose run is still taken, nor another.
  EXPECT_EQ(service.state(first), JobState::kQueued);
  EXPECT_EQ(service.state(second), JobState::kQueued);
  const std::string why =
      "attempt 1 of job 1 on here/0 is over, but not all of its processes "
      "have ended";
  EXPECT_THAT(service.coordinator().why(first)->reasons, Contains(why));
  EXPECT_THAT(service.coordinator().why(second)->reasons, Contains(why));
  const auto devices =
      to_json(service.node("here"), service.coordinator().devices(), service.clock.now());
  EXPECT_TRUE(devices["devices"][0]["aside"]);
  EXPECT_FALSE(devices["devices"][1]["aside"]);
  service.pass(10.1);
  EXPECT_THAT(service.launcher.killed, ElementsAre(left, left));
  gone(service, left);
  EXPECT_EQ(service.state(first), JobState::kRunning);
  EXPECT_THAT(texts_of(service),
              Contains("attempt 1 of job 1 on here/0 is over, but does not end"));
  EXPECT_THAT(texts_of(service), Contains("nothing runs any more of attempt 1 of job 1 on here/0"));
}

TEST(Leftovers, AnotherJobTakesWhatIsLeft) {
  FakeService service(fleet_of({"a", "a"}));
  const int64_t first = *service.submit(job_on(1)), second = *service.submit(job_on(2));
  const int64_t third = *service.submit(job_on(0));
  end_uncleanly(service, first);
  service.ask(second, JobRequest::kCancel);
  service.pass(1.1);
  EXPECT_EQ(service.state(third), JobState::kRunning);  // all there are just now
  EXPECT_EQ(service.launcher.orders.back().fleet.devices.size(), 1u);
}

/// As after a backup was put back.
TEST(Leftovers, WhatNobodyKnowsOfIsStoppedBeforeItsDevicesAreGivenAway) {
  FakeService service(fleet_of({"a", "a"}));
  const int64_t known = *service.submit(job_on(1));
  service.launcher.left = {{{known, Epoch(1)}, {"here/0"}, Nanos(0)},
                           {{9, Epoch(3)}, {"here/1", "gone/0"}, nanos_of_seconds(200)}};
  const AttemptId left{9, Epoch(3)};
  service.restart();
  EXPECT_THAT(service.launcher.stopped, ElementsAre(left));
  EXPECT_EQ(service.state(known), JobState::kRunning);
  const int64_t next = *service.submit(job_on(1));
  service.pass(214);
  EXPECT_EQ(service.state(next), JobState::kQueued);
  EXPECT_THAT(service.launcher.killed, IsEmpty());
  service.pass(2);
  EXPECT_THAT(service.launcher.killed, ElementsAre(left));
  gone(service, left);
  EXPECT_EQ(service.state(next), JobState::kRunning);
  EXPECT_THAT(texts_of(service),
              Contains("attempt 3 of job 9 on here/1, gone/0 runs, which nobody knew of: it is "
                       "stopped"));
  gone(service, left);  // told again: nothing
}

}  // namespace
}  // namespace motley
