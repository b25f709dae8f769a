// Alternatives, limits, arrays and updates, as the coordinator goes about them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/scheduler/service/fake_service.h"

namespace motley {
namespace {

using testing::array_of;
using ::testing::ElementsAre;
using testing::FakeService;
using testing::fleet_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::job_on;

DeviceFilter filter_of(int place, int count, std::vector<std::string> types) {
  DeviceFilter filter;
  filter.count = CountRange{count, count};
  filter.types = std::move(types);
  filter.key = "any_of." + std::to_string(place);
  return filter;
}

/// Two of a, or else three of b.
JobSpec either_job() {
  JobSpec job = job_on(0);
  job.any_of = {filter_of(0, 2, {"a"}), filter_of(1, 3, {"b"})};
  return job;
}

TEST(Shapes, TheFirstAlternativeThatIsFreeIsTakenWhole) {
  FakeService service(fleet_of({"a", "a", "b", "b", "b"}));
  const auto first = service.submit(either_job()), second = service.submit(either_job());
  const auto third = service.submit(either_job());
  ASSERT_EQ(service.launcher.orders.size(), 2u);
  const AttemptOrder& liked = service.launcher.orders[0];
  EXPECT_EQ(liked.fleet.devices.size(), 2u);
  EXPECT_THAT(liked.job.devices.types, ElementsAre("a"));
  EXPECT_THAT(liked.job.any_of, IsEmpty());
  EXPECT_THAT(service.launcher.orders[1].job.devices.types, ElementsAre("b"));
  EXPECT_EQ(service.launcher.orders[1].fleet.devices.size(), 3u);
  const auto why = service.coordinator().why(*third);
  EXPECT_THAT(why->reasons[0], "it needs 2 devices and 0 are free that it admits");
  EXPECT_THAT(why->reasons[1], "or it needs 3 devices and 0 are free that it admits");
  EXPECT_EQ(why->remedy, "the end of job 1");
  service.end(*second, AttemptOutcome::kDone);
  EXPECT_THAT(service.attempts(*third)[0].devices, ElementsAre("here/2", "here/3", "here/4"));
  service.restart();
  EXPECT_EQ(service.state(*first), JobState::kRunning);
}

TEST(Shapes, AnAlternativeThatCannotBeIsLeftOut) {
  FakeService service(fleet_of({"b", "b", "b"}));
  EXPECT_TRUE(service.submit(either_job()));
  EXPECT_THAT(service.launcher.orders[0].job.devices.types, ElementsAre("b"));
  FakeService neither(fleet_of({"b", "b"}));
  const auto refused = neither.submit(either_job());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNoDevice);
  EXPECT_THAT(refused.error().message, HasSubstr("any_of.0: no device of type a"));
  EXPECT_THAT(refused.error().message, HasSubstr("any_of.1: the job wants 3 devices and 2"));
}

TEST(Shapes, LimitsAreOverAllPoolsOfAType) {
  FleetSpec fleet = fleet_of({"A100-40GB", "A100-80GB", "A100-40GB", "V100", "V100"});
  FakeService service(fleet), growing(fleet);
  for (const std::string type : {"A100-40GB", "V100"}) {
    service.know_speed(job_on(1), type, 4);
    growing.know_speed(job_on(1), type, 4);
  }
  JobSpec job = job_on(0);
  job.devices.limits = {{"A100", 2}, {"A100-80GB", 0}, {"V100", 1}};
  const auto id = service.submit(job);
  ASSERT_TRUE(id) << id.error().to_string();
  EXPECT_THAT(service.attempts(*id)[0].devices, ElementsAre("here/0", "here/2", "here/3"));
  job.devices.count = CountRange{1, 8};
  const auto grown = growing.submit(job);
  EXPECT_EQ(growing.attempts(*grown)[0].devices.size(), 3u);
  job.devices.count = CountRange{4, 8};
  EXPECT_FALSE(growing.submit(job));
}

TEST(Shapes, AnArrayIsKeptWholeOrNotAtAll) {
  FakeService service(fleet_of({"a", "a"}));
  std::vector<JobSpec> jobs = array_of(3);
  jobs[2].devices.types = {"none"};
  EXPECT_FALSE(service.submit_all(jobs));
  EXPECT_FALSE(find_job(service.database(), 1));
  const auto first = service.submit_all(array_of(3), "key");
  ASSERT_TRUE(first);
  EXPECT_EQ(*service.submit_all(array_of(3), "key"), *first);
  EXPECT_FALSE(service.submit_all(array_of(2), "key"));
  EXPECT_EQ((*find_job(service.database(), *first + 2)).array.first, *first);
  EXPECT_EQ(service.launcher.orders.size(), 2u);
  EXPECT_EQ(service.launcher.orders[1].job.array.index, 1);
  EXPECT_EQ(service.coordinator().counters().jobs.at(JobState::kQueued), 1);
}

TEST(Shapes, NoMoreOfAnArrayThanMayAtOnceHaveDevices) {
  FakeService service(fleet_of({"a", "a", "a"}));
  const int64_t first = *service.submit_all(array_of(4, 2));
  const auto other = service.submit(job_on(1));
  EXPECT_EQ(service.coordinator().running(), 3);  // two of the array, and the other job
  EXPECT_EQ(service.state(*other), JobState::kRunning);
  service.end(*other, AttemptOutcome::kDone);
  EXPECT_EQ(service.state(first + 2), JobState::kQueued);
  EXPECT_THAT(service.coordinator().why(first + 2)->reasons[0],
              HasSubstr("of its array " + std::to_string(first) + " at most 2 jobs"));
  service.restart();
  EXPECT_EQ(service.coordinator().running(), 2);
  ASSERT_TRUE(service.update(first + 3, {{"priority", "60"}}));
  service.end(first, AttemptOutcome::kDone);
  EXPECT_EQ(service.state(first + 2), JobState::kQueued);
  EXPECT_EQ(service.state(first + 3), JobState::kRunning);
}

TEST(Shapes, AnUpdateTakesEffectAtOnceAndIsKept) {
  FakeService service(fleet_of({"a", "b"}));
  JobSpec on_a = job_on(1);
  on_a.devices.types = {"a"};
  const auto runs = service.submit(on_a), waits = service.submit(on_a, "key");
  EXPECT_EQ(service.state(*waits), JobState::kQueued);
  ASSERT_TRUE(service.update(*waits, {{"priority", "70"}}));
  EXPECT_THAT(service.events(*waits).back(), "updated: priority 50 → 70");
  EXPECT_EQ((*find_job(service.database(), *waits)).priority, 70);
  ASSERT_TRUE(service.update(*waits, {{"resources.devices.types", "[b]"}}));
  EXPECT_EQ(service.state(*waits), JobState::kRunning);
  EXPECT_THAT(service.launcher.orders.back().job.devices.types, ElementsAre("b"));
  const auto devices = service.update(*waits, {{"resources.devices.types", "[a]"}});
  ASSERT_FALSE(devices);
  EXPECT_EQ(devices.error().code, ErrorCode::kNotPermitted);
  EXPECT_THAT(devices.error().message, HasSubstr("motley hold"));
  ASSERT_TRUE(service.update(*waits, {{"priority", "20"}}));  // nothing of its devices
  service.restart();
  EXPECT_EQ(service.state(*waits), JobState::kRunning);
  EXPECT_EQ(*service.submit(on_a, "key"), *waits);
  service.end(*runs, AttemptOutcome::kDone);
  EXPECT_EQ(service.update(*runs, {{"priority", "1"}}).error().code, ErrorCode::kNotPermitted);
  EXPECT_EQ(service.update(99, {{"priority", "1"}}).error().code, ErrorCode::kNotFound);
}

TEST(Shapes, AnUpdateIsCheckedAsASubmissionIs) {
  FakeService service(fleet_of({"a"}));
  const auto first = service.submit(job_on(1)), second = service.submit(job_on(1));
  const std::string number = std::to_string(*second);
  EXPECT_EQ(service.update(*second, {{"resources.devices.count", "2"}}).error().code,
            ErrorCode::kNoDevice);
  EXPECT_EQ(service.update(*second, {{"after", "99"}}).error().code, ErrorCode::kInvalidSpec);
  EXPECT_THAT(service.update(*second, {{"after", number}}).error().message,
              HasSubstr("would wait for itself"));
  EXPECT_THAT(service.events(*second), ElementsAre("submitted"));
  const auto third = service.submit(job_on(1));
  ASSERT_TRUE(service.update(*third, {{"after", number}}));
  EXPECT_EQ(service.state(*third), JobState::kWaiting);
  EXPECT_THAT(service.update(*second, {{"after", std::to_string(*third)}}).error().message,
              HasSubstr("would wait for itself"));
  ASSERT_TRUE(service.update(*third, {{"after", std::to_string(*first)}}));
  service.end(*first, AttemptOutcome::kDone);
  EXPECT_EQ(service.state(*third), JobState::kQueued);
  ASSERT_TRUE(service.update(*third, {{"after", "[]"}}));
}

TEST(Shapes, ALongestDurationIsOtherWhileItRuns) {
  FakeService service(fleet_of({"a"}));
  const auto id = service.submit(job_on(1));
  service.pass(10);
  ASSERT_TRUE(service.update(*id, {{"max_duration", "15s"}}));
  EXPECT_EQ(service.state(*id), JobState::kRunning);
  service.pass(5);
  EXPECT_EQ(service.state(*id), JobState::kStopping);
}

}  // namespace
}  // namespace motley
