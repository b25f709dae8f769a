// What is told of devices: of those that agents bring as of the coordinator's own.

#include "scheduler/service/fleet_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "scheduler/service/metrics_text.h"
#include "scheduler/service/node_json.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/scheduler/service/fake_service.h"

namespace motley {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

FleetSpec with_uuid(FleetSpec fleet, const std::string& uuid) {
  fleet.devices[0].uuid = uuid;
  return fleet;
}

class FleetViewTest : public ::testing::Test {
 protected:
  FleetViewTest()
      : service_(with_uuid(testing::fleet_of({"a"}), "GPU-own")),
        directory_(std::move(*ServiceDirectory::open(scratch_.path() + "/state"))) {
    NodeJoin join = testing::node_of_types("n1", {"b"});
    join.fleet = with_uuid(std::move(join.fleet), "GPU-n1");
    EXPECT_TRUE(service_.join(std::move(join)));
  }

  void hear(std::vector<DeviceGauge> gauges) {
    EXPECT_TRUE(service_.coordinator().hear({"n1", "first", {}, std::move(gauges)}));
    service_.run();
  }
  FleetView view() {
    const DeviceGauge own{"GPU-own", 93, 71, Bytes(int64_t{3} << 20), Bytes(int64_t{8} << 20)};
    return view_of_fleet(service_.coordinator(), service_.database(), directory_, {own});
  }

  testing::TemporaryDirectory scratch_;
  testing::FakeService service_;
  ServiceDirectory directory_;
};

TEST_F(FleetViewTest, HasWhatDriversAndAgentsTell) {
  hear({{"GPU-n1", std::nullopt, 44, std::nullopt, std::nullopt}});
  const json devices = to_json(view())["devices"];
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0]["temperature"], 71);
  EXPECT_EQ(devices[0]["gpu_utilisation"], 93);
  EXPECT_EQ(devices[0]["gpu_memory_used_bytes"], 3 << 20);
  EXPECT_TRUE(devices[0]["job"].is_null());
  EXPECT_EQ(devices[1]["device"], "n1/0");
  EXPECT_EQ(devices[1]["temperature"], 44);
  EXPECT_TRUE(devices[1]["gpu_utilisation"].is_null());
  const std::string metrics = metrics_text(service_.coordinator(), view());
  EXPECT_THAT(metrics, HasSubstr("DCGM_FI_DEV_GPU_TEMP{device=\"n1/0\",UUID=\"GPU-n1\","
                                 "Hostname=\"n1\"} 44\n"));
  EXPECT_THAT(metrics, HasSubstr("DCGM_FI_DEV_FB_USED{device=\"here/0\",UUID=\"GPU-own\","
                                 "Hostname=\"here\"} 3\n"));
  EXPECT_THAT(metrics, Not(HasSubstr("DCGM_FI_DEV_GPU_UTIL{device=\"n1/0\"")));
}

TEST_F(FleetViewTest, ForgetsWhatALostNodeSaid) {
  hear({{"GPU-n1", 5, 44, std::nullopt, std::nullopt}});
  service_.clock.advance(nanos_of_seconds(6));
  service_.run();
  EXPECT_EQ(service_.node("n1").state, NodeState::kLost);
  EXPECT_TRUE(to_json(view())["devices"][1]["temperature"].is_null());
}

TEST_F(FleetViewTest, NamesTheDeviceThatOthersWaitFor) {
  hear({});
  ASSERT_TRUE(service_.submit(testing::job_on(2)));
  RunProgress progress{.epoch = Epoch(1), .phase = "training", .begun = 5};
  progress.ranks = {{0, "here/0", "here", "a", 0.6, 0.4, 0.0, 0.0, {}, {}},
                    {1, "n1/0", "n1", "b", 1.0, 0.0, 0.0, 0.0, {}, {}}};
  const std::string run = directory_.job(1) + "/motley/runs/job/1";
  std::filesystem::create_directories(run);
  std::ofstream(run + "/progress.json") << to_json(progress).dump();
  const json told = to_json(view());
  ASSERT_EQ(told["stragglers"].size(), 1u) << told;
  EXPECT_EQ(told["stragglers"][0]["job"], 1);
  EXPECT_EQ(told["stragglers"][0]["device"], "n1/0");
  EXPECT_EQ(told["stragglers"][0]["text"],
            "rank 1 (b on n1) holds the others up: they wait 40 % of the time");
  EXPECT_EQ(told["devices"][1]["rank"], 1);
}

TEST(AgentReports, HaveGaugesOnlyWhereThereAreAny) {
  AgentReport report;
  report.life = {"n1", "s", {}};
  EXPECT_FALSE(to_json(report).contains("gauges")) << "older coordinators know none";
  report.life.gauges = {{"GPU-1", 12, std::nullopt, Bytes(3), std::nullopt}};
  const auto back = agent_report_from_json("n1", to_json(report));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->life.gauges, report.life.gauges);
}

}  // namespace
}  // namespace motley
