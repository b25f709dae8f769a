#include "worker/train/island.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

DeviceSpec gpu(const std::string& host, const std::string& uuid, const std::string& type = "A100") {
  DeviceSpec device;
  device.host = host;
  device.uuid = uuid;
  device.type = type;
  return device;
}

bool together(const std::vector<DeviceSpec>& devices) {
  std::vector<const DeviceSpec*> all;
  for (const DeviceSpec& device : devices) all.push_back(&device);
  return form_island(all);
}

TEST(Island, IsOfLikeWholeGpus) {
  EXPECT_TRUE(together({gpu("a", "GPU-1"), gpu("a", "GPU-2")}));
  EXPECT_TRUE(together({gpu("a", "GPU-1"), gpu("b", "GPU-1")})) << "on two hosts";
  EXPECT_TRUE(together({gpu("a", ""), gpu("b", "")})) << "the first of each";
  EXPECT_FALSE(together({gpu("a", "GPU-1")})) << "nobody to sum with";
  EXPECT_FALSE(together({gpu("a", "GPU-1"), gpu("a", "GPU-2", "RTX3090")}));
  EXPECT_FALSE(together({gpu("a", "GPU-1"), gpu("a", "GPU-1")}));
  EXPECT_FALSE(together({gpu("a", ""), gpu("a", "")}));
  EXPECT_FALSE(together({gpu("a", "GPU-1"), gpu("a", "")})) << "which may be the same";
  EXPECT_TRUE(together({gpu("a", "GPU-1"), gpu("b", "")}));

  DeviceSpec cpu = gpu("a", "GPU-2"), part = gpu("a", "GPU-2");
  cpu.kind = DeviceKind::kCpu;
  part.share = ShareSpec{64, 0};
  EXPECT_FALSE(together({gpu("a", "GPU-1"), cpu}));
  EXPECT_FALSE(together({gpu("a", "GPU-1"), part}));
}

Plan replicas(const std::vector<std::vector<int>>& ranks_of_stages) {
  Plan plan;
  int rank = 0;
  for (const std::vector<int>& stages : ranks_of_stages) {
    ReplicaPlan& replica = plan.replicas.emplace_back();
    for (const int ranks : stages) {
      StagePlan& stage = replica.stages.emplace_back();
      for (int i = 0; i < ranks; ++i) stage.ranks.emplace_back(rank++);
    }
  }
  return plan;
}

TEST(Island, SumsWhatEachRankHoldsWhole) {
  EXPECT_TRUE(sums_whole_gradients(replicas({{1}, {1}, {1}})));
  EXPECT_FALSE(sums_whole_gradients(replicas({{1}, {1, 1}}))) << "a pipeline";
  EXPECT_FALSE(sums_whole_gradients(replicas({{1}, {2}}))) << "a shared stage";
  Plan sharded = replicas({{1}, {1}});
  sharded.shard_optimizer = true;
  EXPECT_FALSE(sums_whole_gradients(sharded));
}

TEST(Island, WithoutOneGradientsTakeTheOtherWay) {
  // Two GPUs that this test has not: the devices computed with are the CPU's.
  const DeviceSpec first = gpu("a", "GPU-1"), second = gpu("a", "GPU-2");
  DeviceSpec cpu;
  cpu.kind = DeviceKind::kCpu;
  const auto ended = run_inproc(2, [&](Communicator& world) -> Result<Unit> {
    MOTLEY_TRY(const auto device, open_device(cpu));
    MOTLEY_TRY(const auto none, open_island({&first, &first}, world, *device));
    EXPECT_EQ(none, nullptr);
    return Unit{};
  });
  EXPECT_TRUE(ended) << ended.error().message;
}

}  // namespace
}  // namespace motley
