#include "scheduler/service/device_watch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "core/nvml.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

FleetSpec fleet_of_gpu(const std::string& uuid) {
  FleetSpec fleet;
  DeviceSpec& device = fleet.devices.emplace_back();
  device.id = "here/0";
  device.host = "here";
  device.uuid = uuid;
  return fleet;
}

/// Among the GPUs of the stand-in library (tests/support/nvml_stand_in.cc).
class DeviceWatchTest : public ::testing::Test {
 protected:
  DeviceWatchTest() {
    const std::string path = scratch_.path() + "/machine.json";
    std::ofstream(path) << R"({"gpus": [{"uuid": "GPU-1", "memory": 2000, "free": 500,
      "numbers": {"temperature": 71, "utilisation": 93}}, {"uuid": "GPU-2"}, {"uuid": "GPU-3"}]})";
    setenv("MOTLEY_NVML_STAND_IN", path.c_str(), 1);
  }
  void SetUp() override {
    const auto nvml = Nvml::open();
    ASSERT_TRUE(nvml && (*nvml)->gpus().size() == 3)
        << "LD_LIBRARY_PATH does not lead to the stand-in library, as ctest's does";
  }
  ~DeviceWatchTest() override { unsetenv("MOTLEY_NVML_STAND_IN"); }

  static std::vector<DeviceGauge> first_of(const DeviceWatch& watch) {
    while (watch.latest().empty()) std::this_thread::yield();
    return watch.latest();
  }

  testing::TemporaryDirectory scratch_;
};

TEST_F(DeviceWatchTest, TellsOfTheGpusItWasAskedFor) {
  const DeviceWatch watch(fleet_of_gpu("GPU-1"));
  const DeviceGauge expected{"GPU-1", 93, 71, Bytes(1500), Bytes(2000)};
  EXPECT_EQ(first_of(watch), std::vector<DeviceGauge>{expected});
}

TEST_F(DeviceWatchTest, LeavesEmptyWhatACardDoesNotTell) {
  const DeviceWatch watch(fleet_of_gpu("GPU-2"));
  EXPECT_EQ(first_of(watch), std::vector<DeviceGauge>{{"GPU-2"}});
}

TEST_F(DeviceWatchTest, HasNothingOfOtherDevices) {
  EXPECT_TRUE(DeviceWatch(fleet_of_gpu("")).latest().empty());
  EXPECT_TRUE(DeviceWatch(FleetSpec()).latest().empty());
}

}  // namespace
}  // namespace motley
