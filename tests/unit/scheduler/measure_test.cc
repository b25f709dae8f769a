#include "scheduler/run/measure.h"

#include <gtest/gtest.h>

#include "scheduler/run/profile_text.h"

namespace motley {
namespace {

TEST(Measuring, CountsDevices) {
  EXPECT_EQ(measuring_text(1), "measuring 1 device");
  EXPECT_EQ(measuring_text(4), "measuring 4 devices");
}

TEST(ResolveFleet, AMissingFleetIsToldWhereTheJobNamesIt) {
  JobSpec job;
  job.source = "job.yaml";
  job.fleet_path = "/nowhere/fleet.yaml";
  job.places["fleet"] = {"job.yaml", 3, 8};
  const auto of_job = resolve_fleet("", job);
  ASSERT_FALSE(of_job);
  EXPECT_EQ(of_job.error().to_string(),
            "job.yaml:3:8: 'fleet': /nowhere/fleet.yaml: No such file or directory");
  EXPECT_EQ(exit_code(of_job.error().code), 66);
  const auto given = resolve_fleet("/nowhere/given.yaml", job);
  ASSERT_FALSE(given);
  EXPECT_EQ(given.error().to_string(), "/nowhere/given.yaml: No such file or directory");
}

}  // namespace
}  // namespace motley
