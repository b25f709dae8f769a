#include "core/device_islands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A fleet whose rank i drives device i, and a plan that says what each holds.
struct Case {
  FleetSpec fleet;
  Plan plan;

  Case& gpu(const std::string& host, const std::string& uuid, const std::string& type = "A100") {
    DeviceSpec device;
    device.id = host + "/" + std::to_string(fleet.devices.size());
    device.host = host;
    device.uuid = uuid;
    device.type = type;
    fleet.devices.push_back(device);
    plan.ranks.push_back({device.id, host, type});
    return *this;
  }
  /// Its stages by their layers, each of so many of the next ranks.
  Case& replica(const std::vector<std::pair<int, int>>& stages) {
    ReplicaPlan& replica = plan.replicas.emplace_back();
    LayerIndex layer = 0;
    for (const auto& [layers, ranks] : stages) {
      StagePlan& stage = replica.stages.emplace_back();
      stage.first_layer = layer;
      stage.last_layer = (layer += layers) - 1;
      for (int i = 0; i < ranks; ++i) stage.ranks.emplace_back(next_rank_++);
      stage.shares.assign(static_cast<size_t>(ranks), 1.0 / ranks);
    }
    return *this;
  }
  std::vector<std::vector<int>> islands() const { return device_islands(plan, fleet).all(); }

 private:
  int next_rank_ = 0;
};

/// Two replicas, the model whole on each.
std::vector<std::vector<int>> of_two(const DeviceSpec& first, const DeviceSpec& second) {
  Case two;
  two.gpu("x", "").gpu("x", "").replica({{4, 1}}).replica({{4, 1}});
  two.fleet.devices = {first, second};
  two.fleet.devices[0].id = "x/0";
  two.fleet.devices[1].id = "x/1";
  return two.islands();
}

DeviceSpec gpu(const std::string& host, const std::string& uuid, const std::string& type = "A100") {
  return Case().gpu(host, uuid, type).fleet.devices[0];
}

TEST(DeviceIslands, AreOfLikeWholeGpus) {
  const auto together = ElementsAre(ElementsAre(0, 1));
  EXPECT_THAT(of_two(gpu("a", "GPU-1"), gpu("a", "GPU-2")), together);
  EXPECT_THAT(of_two(gpu("a", "GPU-1"), gpu("b", "GPU-1")), together) << "on two hosts";
  EXPECT_THAT(of_two(gpu("a", ""), gpu("b", "")), together) << "the first of each";
  EXPECT_THAT(of_two(gpu("a", "GPU-1"), gpu("b", "")), together);
  EXPECT_THAT(of_two(gpu("a", "GPU-1"), gpu("a", "GPU-2", "RTX3090")), IsEmpty());
  EXPECT_THAT(of_two(gpu("a", "GPU-1"), gpu("a", "GPU-1")), IsEmpty());
  EXPECT_THAT(of_two(gpu("a", ""), gpu("a", "")), IsEmpty());
  EXPECT_THAT(of_two(gpu("a", "GPU-1"), gpu("a", "")), IsEmpty()) << "which may be the same";

  DeviceSpec cpu = gpu("a", "GPU-2"), part = gpu("a", "GPU-2");
  cpu.kind = DeviceKind::kCpu;
  part.share = ShareSpec{64, 0};
  EXPECT_THAT(of_two(gpu("a", "GPU-1"), cpu), IsEmpty());
  EXPECT_THAT(of_two(gpu("a", "GPU-1"), part), IsEmpty());
}

TEST(DeviceIslands, OfFourThatHoldTheModelBesideTwoThatShareIt) {
  Case hybrid;
  for (int i = 0; i < 4; ++i) hybrid.gpu("a", "GPU-" + std::to_string(i)).replica({{6, 1}});
  hybrid.gpu("b", "GPU-4", "RTX3090").gpu("b", "GPU-5", "RTX3090").replica({{3, 1}, {3, 1}});
  EXPECT_THAT(hybrid.islands(), ElementsAre(ElementsAre(0, 1, 2, 3)));
}

TEST(DeviceIslands, StayOnAHostWhereHostsCompressWhatTheySend) {
  Case four;
  four.gpu("x", "1").gpu("x", "2").gpu("y", "3").gpu("y", "4");
  for (int i = 0; i < 4; ++i) four.replica({{4, 1}});
  EXPECT_THAT(four.islands(), ElementsAre(ElementsAre(0, 1, 2, 3)));
  four.plan.compression.codec.kind = CodecKind::kInt8;
  EXPECT_THAT(four.islands(), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  four.plan.compression.codec.kind = CodecKind::kPowerSgd;
  EXPECT_THAT(four.islands(), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  four.plan.shard_optimizer = true;
  EXPECT_THAT(four.islands(), IsEmpty()) << "only speakers would have what factors come to";
}

TEST(DeviceIslands, HoldTheVerySameSlices) {
  Case pipelines;
  for (int i = 0; i < 6; ++i) pipelines.gpu("a", "GPU-" + std::to_string(i));
  pipelines.replica({{2, 1}, {4, 1}}).replica({{2, 1}, {4, 1}}).replica({{3, 1}, {3, 1}});
  EXPECT_THAT(pipelines.islands(), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));

  Case shared;
  for (int i = 0; i < 6; ++i) shared.gpu("a", "GPU-" + std::to_string(i));
  shared.replica({{6, 2}}).replica({{6, 2}}).replica({{6, 1}}).replica({{6, 1}});
  EXPECT_THAT(shared.islands(),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4, 5)));
  shared.plan.replicas[1].stages[0].shares = {0.75, 0.25};
  EXPECT_THAT(shared.islands(), ElementsAre(ElementsAre(4, 5)));
  shared.plan.replicas[3].stages[0].precision = Precision::kBf16;
  EXPECT_THAT(shared.islands(), IsEmpty());
}

TEST(DeviceIslands, OneSpeaksForAll) {
  const DeviceIslands islands({{1, 2, 5}, {3, 4}});
  EXPECT_THAT(islands.speakers({0, 1, 2, 3, 4, 5, 6}), ElementsAre(0, 1, 3, 6));
  EXPECT_THAT(islands.speakers({0, 1, 2, 3, 4, 5, 6}, 5), ElementsAre(0, 3, 5, 6));
  EXPECT_THAT(islands.speakers({0, 1, 2, 5}, 3), ElementsAre(0, 1)) << "who is not asked about";
  EXPECT_THAT(DeviceIslands().speakers({2, 3}), ElementsAre(2, 3));
  EXPECT_EQ(islands.of(0), nullptr);
  EXPECT_EQ(islands.of(7), nullptr);
  EXPECT_THAT(*islands.of(4), ElementsAre(3, 4));
}

}  // namespace
}  // namespace motley
