#include "core/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "kernels/device.h"
#include "kernels/pcie.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Makes the stand-in library (tests/support/nvml_stand_in.cc) show this machine.
class NvmlTest : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("MOTLEY_NVML_STAND_IN"); }

  std::unique_ptr<Nvml> open(const std::string& machine) {
    const std::string path = scratch_.path() + "/machine.json";
    std::ofstream(path) << machine;
    setenv("MOTLEY_NVML_STAND_IN", path.c_str(), 1);
    auto nvml = Nvml::open();
    EXPECT_TRUE(nvml) << (nvml ? "" : nvml.error().to_string());
    return std::move(*nvml);
  }

  testing::TemporaryDirectory scratch_;
};

TEST_F(NvmlTest, TellsWhatTheDriverTells) {
  const auto nvml = open(R"({"driver": "580.65", "gpus": [
    {"name": "NVIDIA A", "uuid": "GPU-1", "bus_id": "00000000:01:00.0", "memory": 2000, "free": 500,
     "capability": [8, 6], "throttle": 72, "numbers": {"clock": 1200, "most_clock": 1900,
     "power": 250500, "power_limit": 300000, "temperature": 71, "utilisation": 93, "width": 4, "most_width": 16,
     "generation": 3, "most_generation": 4}}]})");
  EXPECT_EQ(nvml->driver_version(), "580.65");
  const auto gpus = nvml->gpus();
  ASSERT_EQ(gpus.size(), 1U);
  const GpuStatus& gpu = gpus[0];
  EXPECT_EQ(gpu.name, "NVIDIA A");
  EXPECT_EQ(gpu.uuid, "GPU-1");
  EXPECT_EQ(gpu.bus_id, "00000000:01:00.0");
  EXPECT_EQ(gpu.memory, Bytes(2000));
  EXPECT_EQ(gpu.free_memory, Bytes(500));
  EXPECT_EQ(gpu.compute_capability, 86);
  EXPECT_EQ(gpu.sm_clock, 1200);
  EXPECT_EQ(gpu.most_sm_clock, 1900);
  EXPECT_EQ(gpu.power, 250.5);
  EXPECT_EQ(gpu.power_limit, 300.0);
  EXPECT_EQ(gpu.temperature, 71);
  EXPECT_EQ(gpu.utilisation, 93);
  EXPECT_EQ(gpu.pcie_width, 4);
  EXPECT_EQ(gpu.most_pcie_width, 16);
  EXPECT_EQ(gpu.pcie_generation, 3);
  EXPECT_EQ(gpu.most_pcie_generation, 4);
  EXPECT_THAT(gpu.throttled_by, ElementsAre("hardware slowdown", "temperature (hardware)"));
}

TEST_F(NvmlTest, LeavesAbsentWhatACardDoesNotTell) {
  const auto nvml = open(R"({"gpus": [{"name": "old", "uuid": "GPU-1", "throttle": 3}]})");
  EXPECT_EQ(nvml->driver_version(), "");
  const GpuStatus gpu = nvml->gpus().at(0);
  EXPECT_EQ(gpu.memory, std::nullopt);
  EXPECT_EQ(gpu.power, std::nullopt);
  EXPECT_EQ(gpu.pcie_width, std::nullopt);
  EXPECT_THAT(gpu.throttled_by, IsEmpty()) << "idling and chosen clocks are no throttling";
}

TEST_F(NvmlTest, TellsTheLinkThatCopiesAreComparedWith) {
  const auto nvml = open(R"({"gpus": [{"name": "docked", "uuid": "GPU-1", "numbers": {"width": 4,
    "most_width": 16, "generation": 3, "most_generation": 4}}]})");
  EXPECT_EQ(pcie_verdict(nvml->gpus().at(0), 3.2e9),
            "3.2 GB/s, 81 % of the 3.9 GB/s of x4 generation 3 (x4 of x16: an external dock or a "
            "slot with fewer lanes; generation 3 of 4: a riser, a cable or a firmware setting)");
}

TEST_F(NvmlTest, LeavesOutACardThatFellOffTheBus) {
  const auto nvml = open(R"({"gpus": [{"uuid": "GPU-1"}, {}, {"uuid": "GPU-3"}]})");
  const auto gpus = nvml->gpus();
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[1].uuid, "GPU-3");
}

TEST_F(NvmlTest, ReportsEachFaultOnce) {
  const auto nvml = open(R"({"gpus": [{"uuid": "GPU-1"}, {"uuid": "GPU-2", "xids": [79, 48]}]})");
  const auto xids = nvml->new_xids();
  ASSERT_EQ(xids.size(), 2U);
  EXPECT_EQ(xids[0].uuid, "GPU-2");
  EXPECT_EQ(xids[0].xid, 79);
  EXPECT_EQ(xids[1].xid, 48);
  EXPECT_THAT(nvml->new_xids(), IsEmpty());
}

TEST_F(NvmlTest, GpusThatCudaDoesNotShowAreMentioned) {
  open(R"({"gpus": [{"uuid": "GPU-1"}, {"uuid": "GPU-2"}]})");
  setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
  std::string note;
  discover_devices(&note);
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_THAT(note,
              ::testing::EndsWith("(the driver shows 2 GPUs, CUDA_VISIBLE_DEVICES leaves 0)"));
}

TEST_F(NvmlTest, ADriverThatIsNotLoadedIsOneLine) {
  const auto nvml = Nvml::open();
  ASSERT_FALSE(nvml);
  EXPECT_EQ(nvml.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(nvml.error().message, ::testing::HasSubstr("does not start"));
}

}  // namespace
}  // namespace motley
