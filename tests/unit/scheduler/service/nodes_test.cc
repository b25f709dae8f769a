// Nodes that come, fall silent, come back and are drained, on a clock by hand.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/new_seeds.h"
#include "tests/unit/scheduler/service/fake_service.h"

namespace motley {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FakeService;
using testing::fleet_of;
using ::testing::HasSubstr;
using testing::job_on;
using testing::node_of_types;

std::vector<std::string> devices_of(const AttemptOrder& order) {
  std::vector<std::string> ids;
  for (const DeviceSpec& device : order.fleet.devices) ids.push_back(device.id);
  return ids;
}

JobSpec job_on_range(int low, int high) {
  JobSpec job = job_on(low);
  job.devices.count = CountRange{low, high};
  return job;
}

TEST(Nodes, AJobWaitsForTheFirstNode) {
  FakeService service{FleetSpec()};
  const auto id = service.submit(job_on(2));
  ASSERT_TRUE(id) << id.error().message;
  EXPECT_EQ(service.state(*id), JobState::kQueued);
  service.come("n1", {"a"});
  EXPECT_EQ(service.state(*id), JobState::kQueued);
  // Now that devices are known, they are what a submission is measured by.
  EXPECT_EQ(service.submit(job_on(2)).error().code, ErrorCode::kNoDevice);
  service.come("n2", {"a"});
  EXPECT_EQ(service.state(*id), JobState::kRunning);
  EXPECT_THAT(devices_of(service.launcher.orders.back()), ElementsAre("n1/0", "n2/0"));
  EXPECT_THAT(service.node_events("n2"), ElementsAre("registered", "ready"));
}

TEST(Nodes, DevicesOfANodeAreAddedToItsOwn) {
  FakeService service(fleet_of({"a"}));
  service.come("n1", {"a", "b"});
  const int64_t all = *service.submit(job_on(0));
  EXPECT_EQ(service.state(all), JobState::kRunning);
  EXPECT_THAT(devices_of(service.launcher.orders.back()), ElementsAre("here/0", "n1/0", "n1/1"));
}

TEST(Nodes, ASilentNodeIsLostAndItsJobGoesOnElsewhere) {
  FakeService service(fleet_of({"a"}));
  service.come("n1", {"a", "a"});
  const int64_t id = *service.submit(job_on_range(1, 3));
  ASSERT_EQ(service.launcher.orders.back().fleet.devices.size(), 3u);
  service.pass(4.9);
  EXPECT_EQ(service.node("n1").state, NodeState::kReady);
  service.pass(0.2);
  EXPECT_EQ(service.node("n1").state, NodeState::kLost);
  ASSERT_THAT(service.launcher.killed, ElementsAre(AttemptId{id, Epoch(1)}));
  EXPECT_EQ(service.state(id), JobState::kRunning);  // until its processes here have ended
  service.end(id, AttemptOutcome::kFailed, true, "its process was killed");
  EXPECT_EQ(service.state(id), JobState::kWaiting);  // not hopeless, whatever it says itself
  EXPECT_EQ(service.status(id).cause, "node n1 is lost: silent for 5 s");
  EXPECT_EQ(service.status(id).restarts, 0) << "it is not the job's fault";
  service.pass(1.1);
  EXPECT_EQ(service.state(id), JobState::kRunning);
  EXPECT_THAT(devices_of(service.launcher.orders.back()), ElementsAre("here/0"));
}

TEST(Nodes, ALostNodeIsBackWhenItHasEndedWhatItStillRan) {
  FakeService service{FleetSpec()};
  service.come("n1", {"a"});
  const int64_t id = *service.submit(job_on(1));
  service.pass(5.1);
  service.end(id, AttemptOutcome::kFailed);
  service.pass(1.1);
  EXPECT_EQ(service.state(id), JobState::kQueued);
  EXPECT_THAT(service.coordinator().why(id)->reasons, Contains("node n1 is lost: silent for 5 s"));
  EXPECT_EQ(service.coordinator().why(id)->remedy, "node n1 coming back");
  const AttemptId old{id, Epoch(1)};
  EXPECT_THAT(*service.hear("n1", {old}), ElementsAre());
  EXPECT_EQ(service.state(id), JobState::kQueued);
  EXPECT_THAT(*service.hear("n1"), ElementsAre());
  EXPECT_EQ(service.node("n1").state, NodeState::kReady);
  EXPECT_EQ(service.state(id), JobState::kRunning);
  EXPECT_THAT(*service.hear("n1"), ElementsAre(AttemptId{id, Epoch(2)}));
}

TEST(Nodes, AnAgentThatIsStartedAgainHasLostItsAttempts) {
  FakeService service{FleetSpec()};
  service.come("n1", {"a"});
  const int64_t id = *service.submit(job_on(1));
  const auto other = service.join(node_of_types("n1", {"a"}, "second"));
  ASSERT_FALSE(other);  // the first one calls
  EXPECT_EQ(other.error().code, ErrorCode::kNotPermitted);
  service.pass(5.1);
  ASSERT_TRUE(service.join(node_of_types("n1", {"a"}, "second")));
  ASSERT_TRUE(service.hear("n1", {}, "second"));
  EXPECT_EQ(service.hear("n1").error().code, ErrorCode::kNotPermitted);
  EXPECT_EQ(service.node("n1").state, NodeState::kReady);
  service.end(id, AttemptOutcome::kFailed);
  EXPECT_EQ(service.state(id), JobState::kWaiting);
}

/// As after a backup was put back: the agent of then was ended long ago.
TEST(Nodes, AnAgentThatTheDatabaseDoesNotKnowJoinsAgainWhenTheOneOfThenIsLost) {
  FakeService service{FleetSpec()};
  service.come("n1", {"a"});
  service.restart();
  EXPECT_EQ(service.hear("n1", {}, "second").error().code, ErrorCode::kNoDevice);
  service.pass(5.1);
  EXPECT_EQ(service.hear("n1", {}, "second").error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(service.join(node_of_types("n1", {"a"}, "second")));
  ASSERT_TRUE(service.hear("n1", {}, "second"));
  EXPECT_EQ(service.node("n1").state, NodeState::kReady);
}

TEST(Nodes, OfTwoAgentsWithOneNameOneIsRefused) {
  FakeService service{FleetSpec()};
  service.come("n1", {"a"});
  service.restart();
  EXPECT_EQ(service.hear("n1", {}, "second").error().code, ErrorCode::kNoDevice);
  ASSERT_TRUE(service.hear("n1"));  // the node is still its first agent's
  EXPECT_EQ(service.hear("n1", {}, "second").error().code, ErrorCode::kNotPermitted);
  service.pass(5.1);  // both have been silent: whoever joins first has it
  EXPECT_EQ(service.hear("n1", {}, "second").error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(service.join(node_of_types("n1", {"a"}, "second")));
  EXPECT_EQ(service.hear("n1").error().code, ErrorCode::kNoDevice);
  ASSERT_TRUE(service.hear("n1", {}, "second"));
  EXPECT_EQ(service.hear("n1").error().code, ErrorCode::kNotPermitted);
}

TEST(Nodes, AJobIsSpreadOverAsFewNodesAsCanBe) {
  FakeService service{FleetSpec()};
  service.come("n1", {"a"});
  service.come("n2", {"a", "a", "a"});
  service.come("n3", {"a", "a"});
  const int64_t two = *service.submit(job_on(2));
  EXPECT_THAT(service.attempts(two)[0].devices, ElementsAre("n3/0", "n3/1"));
  const int64_t four = *service.submit(job_on(4));
  EXPECT_THAT(service.attempts(four)[0].devices, ElementsAre("n1/0", "n2/0", "n2/1", "n2/2"));
}

TEST(Nodes, ADrainedNodeGetsNothingNewAndIsEmptiedAtItsDeadline) {
  FakeService service{FleetSpec()};
  service.come("n1", {"a"});
  const int64_t first = *service.submit(job_on(1)), second = *service.submit(job_on(1));
  ASSERT_TRUE(service.drain("n1", {nanos_of_seconds(3), "a fan"}));
  EXPECT_THAT(service.coordinator().why(second)->reasons, Contains("node n1 is draining: a fan"));
  EXPECT_EQ(service.coordinator().why(second)->remedy, "motley undrain n1, then the end of job 1");
  service.pass(2.9);
  service.hear("n1");
  EXPECT_EQ(service.state(first), JobState::kRunning);
  service.pass(0.2);
  ASSERT_EQ(service.state(first), JobState::kStopping);
  EXPECT_THAT(service.events(first), Contains("stopping attempt 1: its node is drained"));
  service.end(first, AttemptOutcome::kStopped);
  EXPECT_EQ(service.state(first), JobState::kQueued);
  EXPECT_EQ(service.state(second), JobState::kQueued);
  service.hear("n1");
  ASSERT_TRUE(service.undrain("n1"));
  EXPECT_EQ(service.state(first), JobState::kRunning);
  EXPECT_EQ(service.drain("n9").error().code, ErrorCode::kNotFound);
}

TEST(Nodes, ADeadlineOutlivesTheCoordinator) {
  FakeService service(fleet_of({"a"}));
  const int64_t id = *service.submit(job_on(1));
  ASSERT_TRUE(service.drain("here", {nanos_of_seconds(3), ""}));
  service.restart();
  service.pass(2.9);
  EXPECT_EQ(service.state(id), JobState::kRunning);
  service.pass(0.2);
  EXPECT_EQ(service.state(id), JobState::kStopping);
  EXPECT_THAT(service.node_events("here"), Contains("its deadline has passed"));
  service.restart();
  EXPECT_FALSE(service.node("here").drain_by) << "it has passed before";
}

TEST(Nodes, ADeadlineGoesOnWhereARestartedCoordinatorFindsIt) {
  FakeService service(fleet_of({"a"}));
  const int64_t id = *service.submit(job_on(1));
  ASSERT_TRUE(service.drain("here", {nanos_of_seconds(60), ""}));
  for (int second = 0; second < 55; ++second) service.pass(1);
  service.restart();
  service.pass(9);
  EXPECT_EQ(service.state(id), JobState::kRunning);
  service.pass(2);  // it was written 5 s before the end of the old one
  EXPECT_EQ(service.state(id), JobState::kStopping);
}

TEST(Nodes, ANodeThatDiesAtEachStartIsWaitedForLongerAndLonger) {
  FakeService service{FleetSpec()};
  service.come("n1", {"a"});
  const int64_t id = *service.submit(job_on(1));
  std::vector<int64_t> waits;  // s
  for (int round = 0; round < 8; ++round) {
    ASSERT_EQ(service.state(id), JobState::kRunning);
    ASSERT_TRUE(service.leave("n1"));
    service.end_in_vain(id);
    ASSERT_EQ(service.state(id), JobState::kWaiting) << "round " << round;
    waits.push_back(service.status(id).not_before.value() / 1'000'000'000);
    service.come("n1", {"a"});
    if (round == 4) service.restart();  // nor does that forget it
    service.come("n1", {"a"});
    for (int second = 0; second < 61; ++second) {
      service.pass(1);
      service.hear("n1");
    }
  }
  EXPECT_THAT(waits, ElementsAre(1, 2, 4, 8, 16, 32, 60, 60));
  EXPECT_EQ(service.status(id).restarts, 0);
}

TEST(Nodes, OneThatIsLostCanBeForgotten) {
  FakeService service{FleetSpec()};
  service.come("n1", {"a"});
  service.come("n2", {"a"});
  const int64_t id = *service.submit(job_on(2));
  EXPECT_EQ(service.forget("n3").error().code, ErrorCode::kNotFound);
  const auto refused = service.forget("n1");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotPermitted);
  EXPECT_THAT(refused.error().message, HasSubstr("node n1 is ready"));
  ASSERT_TRUE(service.leave("n1"));
  EXPECT_THAT(service.forget("n1").error().message, HasSubstr("still has n1/0"));
  service.end(id, AttemptOutcome::kFailed);
  ASSERT_TRUE(service.forget("n1"));
  EXPECT_EQ(service.coordinator().nodes().count("n1"), 0u);
  EXPECT_EQ(service.coordinator().devices().fleet().devices.size(), 1u);
  EXPECT_THAT(service.node_events("n1"), Contains("forgotten"));
  EXPECT_EQ(service.hear("n1").error().code, ErrorCode::kNotFound);
  service.restart();
  EXPECT_EQ(service.coordinator().nodes().count("n1"), 0u);
  service.hear("n2");
  service.come("n1", {"a"});  // it is new
  service.pass(1.1);
  service.hear("n2");
  EXPECT_EQ(service.state(id), JobState::kRunning);
}

TEST(Nodes, AHostOfTheOwnFleetIsNotForgotten) {
  FakeService service(fleet_of({"a"}));
  EXPECT_EQ(service.forget("here").error().code, ErrorCode::kNotPermitted);
}

TEST(Nodes, WithoutADeadlineWhatRunsRunsToItsEnd) {
  FakeService service(fleet_of({"a"}));
  const int64_t first = *service.submit(job_on(1)), second = *service.submit(job_on(1));
  ASSERT_TRUE(service.drain("here"));
  service.pass(1000);
  EXPECT_EQ(service.state(first), JobState::kRunning);
  service.end(first, AttemptOutcome::kDone);
  EXPECT_EQ(service.state(second), JobState::kQueued);
  service.restart();  // and is remembered
  EXPECT_EQ(service.state(second), JobState::kQueued);
  ASSERT_TRUE(service.undrain("here"));
  EXPECT_EQ(service.state(second), JobState::kRunning);
}

TEST(Nodes, ARestartedCoordinatorDisturbsNobody) {
  FakeService service{FleetSpec()};
  service.come("n1", {"a"});
  service.come("n2", {"a"});
  const int64_t id = *service.submit(job_on(2));
  service.restart();
  EXPECT_EQ(service.node("n1").state, NodeState::kAwaited);
  EXPECT_EQ(service.state(id), JobState::kRunning);
  EXPECT_THAT(*service.hear("n1", {{id, Epoch(1)}}), ElementsAre(AttemptId{id, Epoch(1)}));
  service.pass(4.9);
  EXPECT_TRUE(service.launcher.killed.empty());
  service.hear("n1");
  service.pass(0.2);  // n2 does not call again
  EXPECT_THAT(service.launcher.killed, ElementsAre(AttemptId{id, Epoch(1)}));
  EXPECT_EQ(service.node("n1").state, NodeState::kReady);
  EXPECT_EQ(service.node("n2").state, NodeState::kLost);
}

TEST(Nodes, AJobForAllDevicesWaitsForThoseThatAreAwaited) {
  FakeService service{FleetSpec()};
  service.come("n1", {"a"});
  service.come("n2", {"a"});
  service.drain("n1");
  service.drain("n2");
  const int64_t id = *service.submit(job_on(0));
  service.restart();
  service.undrain("n1");
  service.undrain("n2");
  service.hear("n1");
  EXPECT_EQ(service.state(id), JobState::kQueued);  // n2 may come within a moment
  service.hear("n2");
  EXPECT_EQ(service.launcher.orders.back().fleet.devices.size(), 2u);
}

TEST(Nodes, NobodyOffersWhatAnotherHas) {
  FakeService service(fleet_of({"a"}));
  EXPECT_EQ(service.join(node_of_types("here", {"a"})).error().code, ErrorCode::kNotPermitted);
  NodeJoin gpu = node_of_types("n1", {"a"});
  gpu.fleet.devices[0].uuid = "GPU-1";
  ASSERT_TRUE(service.join(gpu));
  NodeJoin same = node_of_types("n2", {"a"});
  same.fleet.devices[0].uuid = "GPU-1";
  EXPECT_THAT(service.join(same).error().message, HasSubstr("is also n1/0"));
}

TEST(Nodes, AnAgentThatEndsTakesItsDevicesAlong) {
  FakeService service{FleetSpec()};
  service.come("n1", {"a"});
  const int64_t id = *service.submit(job_on(1));
  ASSERT_TRUE(service.leave("n1"));
  EXPECT_THAT(service.launcher.killed, ElementsAre(AttemptId{id, Epoch(1)}));
  service.end(id, AttemptOutcome::kFailed);
  EXPECT_EQ(service.status(id).cause, "node n1 is lost: its agent has ended");
}

/// Whatever nodes do: no device is in two attempts that are not over, none is given of a node that
/// is lost, awaited or draining, and nothing is left waiting when all are back.
class AnyNodes {
 public:
  explicit AnyNodes(uint64_t seed) : random_(seed), service_(fleet_of({"a", "b"})) {
    for (const char* name : {"n1", "n2", "n3"}) service_.come(name, {"a", "a", "b"});
  }

  void run() {
    for (int i = 0; i < 12; ++i)
      if (const auto id = service_.submit(job_on_range(1 + pick(3), 3 + pick(3))))
        ids_.push_back(*id);
    check();
    for (int round = 0; round < 300; ++round) {
      step();
      check();
    }
    for (const char* name : {"n1", "n2", "n3"}) {
      service_.undrain(name);
      calls_.insert(name);
    }
    for (int round = 0; round < 200; ++round) {
      service_.pass(1);
      call();
      end_one();
      check();
    }
    for (const int64_t id : ids_) EXPECT_TRUE(is_final(service_.state(id))) << "job " << id;
  }

 private:
  int pick(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  std::string any_node() { return "n" + std::to_string(1 + pick(3)); }

  void step() {
    switch (pick(7)) {
      case 0:
        calls_.erase(any_node());
        break;
      case 1:
        calls_.insert(any_node());
        break;
      case 2:
        service_.drain(any_node(), {nanos_of_seconds(pick(4)), ""});
        break;
      case 3:
        service_.undrain(any_node());
        break;
      case 4:
        if (pick(5) == 0) service_.restart();
        break;
      case 5:
        end_one();
        break;
      default:
        service_.pass(1);
    }
    call();
  }

  void call() {
    for (const std::string& name : calls_) service_.hear(name);
  }

  /// Those that were killed, or asked to stop, end some time; others may.
  void end_one() {
    if (service_.launcher.begun.empty()) return;
    auto which = service_.launcher.begun.begin();
    std::advance(which, pick(static_cast<int>(service_.launcher.begun.size())));
    const JobState state = service_.state(which->job);
    const bool killed =
        std::count(service_.launcher.killed.begin(), service_.launcher.killed.end(), *which) > 0;
    if (killed || state == JobState::kStopping)
      service_.end(which->job, AttemptOutcome::kStopped);
    else
      service_.end(which->job, AttemptOutcome::kDone);
  }

  void check() {
    std::set<std::string> given;
    for (; seen_ < service_.launcher.orders.size(); ++seen_) {
      const AttemptOrder& order = service_.launcher.orders[seen_];
      if (devices_.count(order.id) != 0) continue;  // asked for again by a restarted one
      devices_[order.id] = devices_of(order);
      for (const DeviceSpec& device : order.fleet.devices)
        EXPECT_EQ(service_.node(device.host).access(), DeviceAccess::kOpen) << device.id;
    }
    for (const AttemptId id : service_.launcher.begun)
      for (const std::string& device : devices_.at(id))
        EXPECT_TRUE(given.insert(device).second) << device << " is given twice";
  }

  std::mt19937_64 random_;
  FakeService service_;
  std::vector<int64_t> ids_;
  std::set<std::string> calls_{"n1", "n2", "n3"};
  std::map<AttemptId, std::vector<std::string>> devices_;
  size_t seen_ = 0;
};

TEST(Nodes, NoDeviceIsGivenTwiceThroughWhateverNodesDo) {
  for (uint64_t seed = 1; seed <= 15; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    AnyNodes(seed).run();
  }
  for_new_seeds(5, [](uint32_t seed) { AnyNodes(seed).run(); });
}

TEST(Nodes, ProgramsRunOnThemToo) {
  FakeService service(fleet_of({"a"}));
  service.come("n1", {"a", "a"});
  JobSpec program;
  program.name = "program";
  program.program.command = {"true"};
  program.devices.count = CountRange{3, 3};
  const int64_t job = *service.submit(program);
  EXPECT_EQ(service.state(job), JobState::kRunning);
  EXPECT_EQ(service.launcher.orders.back().agents, std::vector<std::string>{"n1"});
}

}  // namespace
}  // namespace motley
