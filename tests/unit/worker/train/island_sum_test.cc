#include "worker/train/island_sum.h"

#include <gtest/gtest.h>

#include <span>

namespace motley {
namespace {

/// Collective over four ranks, the first two of whom want to be an island. The GPUs are ones that
/// this test has not: the devices computed with are the CPU's.
TEST(IslandSum, WithoutNcclNoRankHasAnIsland) {
  DeviceSpec cpu;
  cpu.kind = DeviceKind::kCpu;
  const auto ended = run_inproc(4, [&](Communicator& world) -> Result<Unit> {
    MOTLEY_TRY(const auto device, open_device(cpu));
    MOTLEY_TRY(const OpenIslands none, open_islands(DeviceIslands({{0, 1}}), world, *device));
    EXPECT_TRUE(none.islands.all().empty());
    EXPECT_EQ(none.ranks, nullptr);
    EXPECT_EQ(none.devices, nullptr);
    return world.barrier();
  });
  EXPECT_TRUE(ended) << ended.error().message;
}

}  // namespace
}  // namespace motley
