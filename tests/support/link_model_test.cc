#include "tests/support/link_model.h"

#include <gmock/gmock.h>

namespace motley::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kRate = 1e9;  // a byte takes a nanosecond

LinkPacket packet(int from, int to, int64_t bytes) { return {from, to, bytes, nullptr}; }

/// The times at which packets arrive, by asking at each event and just before it.
std::vector<int64_t> arrivals(LinkModel& model) {
  std::vector<int64_t> times;
  while (const std::optional<Nanos> next = model.next_event()) {
    EXPECT_THAT(model.advance(*next - Nanos(1)), IsEmpty());
    for (size_t left = model.advance(*next).size(); left > 0; --left)
      times.push_back(next->value());
  }
  return times;
}

class LinkModelTest : public ::testing::Test {
 protected:
  LinkModelTest() {
    for (int i = 0; i < 3; ++i) model.add_host({kRate, kRate});
    for (const auto& [a, b] : {std::pair(0, 1), {0, 2}, {1, 2}}) model.set_delay(a, b, Nanos(500));
  }
  LinkModel model;
};

TEST_F(LinkModelTest, APacketTakesItsTimeOnceAndTheDelay) {
  model.arrive(packet(0, 1, 1000), Nanos(10));
  EXPECT_THAT(arrivals(model), ElementsAre(10 + 1000 + 500));
}

TEST_F(LinkModelTest, PacketsOfOneSenderFollowEachOther) {
  for (int i = 0; i < 3; ++i) model.arrive(packet(0, 1 + i % 2, 1000), Nanos(0));
  EXPECT_THAT(arrivals(model), ElementsAre(1500, 2500, 3500));
}

TEST_F(LinkModelTest, BothDirectionsAreIndependent) {
  model.arrive(packet(0, 1, 1000), Nanos(0));
  model.arrive(packet(1, 0, 1000), Nanos(0));
  EXPECT_THAT(arrivals(model), ElementsAre(1500, 1500));
}

TEST_F(LinkModelTest, SendersShareADownlink) {
  for (int i = 0; i < 2; ++i)
    for (int from = 0; from < 2; ++from) model.arrive(packet(from, 2, 1000), Nanos(0));
  EXPECT_THAT(arrivals(model), ElementsAre(1500, 2500, 3500, 4500));
}

TEST_F(LinkModelTest, TheSlowerLinkDecides) {
  model.set_rate(1, {kRate, kRate / 4});
  model.arrive(packet(0, 1, 1000), Nanos(0));
  EXPECT_THAT(arrivals(model), ElementsAre(4500));
  model.set_rate(0, {kRate / 10, kRate});
  model.arrive(packet(0, 1, 1000), Nanos(10000));
  EXPECT_THAT(arrivals(model), ElementsAre(20500));
}

TEST_F(LinkModelTest, ASlowSenderLeavesTheDownlinkToOthers) {
  model.set_rate(0, {kRate / 10, kRate});
  model.arrive(packet(0, 2, 1000), Nanos(0));
  for (int i = 0; i < 5; ++i) model.arrive(packet(1, 2, 1000), Nanos(0));
  EXPECT_THAT(arrivals(model), ElementsAre(1500, 2500, 3500, 4500, 5500, 10500));
}

TEST_F(LinkModelTest, ANewRateHoldsFromTheNextPacketOn) {
  for (int i = 0; i < 2; ++i) model.arrive(packet(0, 1, 1000), Nanos(0));
  model.set_rate(0, {kRate / 2, kRate});
  EXPECT_THAT(arrivals(model), ElementsAre(1500, 3500));
}

TEST_F(LinkModelTest, ACutLosesWhatIsUnderWayAndHealsWithoutIt) {
  for (int i = 0; i < 2; ++i) model.arrive(packet(0, 1, 1000), Nanos(0));
  EXPECT_THAT(model.advance(Nanos(1100)), IsEmpty());
  model.set_cut(1, true);
  model.arrive(packet(1, 2, 1000), Nanos(1100));
  EXPECT_THAT(arrivals(model), IsEmpty());
  EXPECT_EQ(model.traffic(0).lost, 2);
  EXPECT_EQ(model.traffic(1).lost, 1);
  model.set_cut(1, false);
  model.arrive(packet(0, 1, 1000), Nanos(5000));
  EXPECT_THAT(arrivals(model), ElementsAre(6500));
}

TEST_F(LinkModelTest, ADownlinkKeepsOnlySoMuch) {
  constexpr int64_t kBytes = 65536;
  const int64_t fits = LinkModel::kDownlinkQueueBytes / kBytes;
  // Two send at full rate to one: half of it must wait.
  for (int64_t i = 0; i < 2 * fits; ++i)
    for (int from = 0; from < 2; ++from) model.arrive(packet(from, 2, kBytes), Nanos(0));
  const size_t arrived = arrivals(model).size();
  const int64_t lost = model.traffic(0).lost + model.traffic(1).lost;
  EXPECT_EQ(static_cast<int64_t>(arrived) + lost, 4 * fits);
  EXPECT_NEAR(static_cast<double>(arrived), static_cast<double>(3 * fits), 3);
  EXPECT_EQ(model.traffic(2).down_bytes, static_cast<int64_t>(arrived) * kBytes);
}

}  // namespace
}  // namespace motley::testing
