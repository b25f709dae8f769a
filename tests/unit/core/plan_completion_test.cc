#include "core/plan_completion.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/spec/profile_key.h"

namespace motley {
namespace {

using nlohmann::json;

JobSpec job() {
  JobSpec job;
  job.model = {"gpt", 2, 4, 8, 16, 32};  // layers 0 to 3
  job.train.global_batch = 6;
  return job;
}

FleetSpec fleet() {
  FleetSpec fleet;
  fleet.source = "fleet.yaml";
  for (const char* host : {"a", "b", "b"}) {
    DeviceSpec device;
    device.host = host;
    device.id = std::string(host) + "/" + std::to_string(fleet.devices.size());
    device.kind = DeviceKind::kCpu;
    device.type = std::string("card of ") + host;
    fleet.devices.push_back(device);
  }
  return fleet;
}

/// As little as a plan may say.
json by_hand() {
  return json::parse(R"({"version": 1, "numerics": "fast", "global_batch": 6, "grain": 1,
    "ranks": [{"device": "a/0"}, {"device": "b/1"}, {"device": "b/2"}],
    "replicas": [
      {"stages": [{"first_layer": 0, "last_layer": 3, "ranks": [0]}], "micro_batch": 2, "grains": 4},
      {"stages": [{"first_layer": 0, "last_layer": 3, "ranks": [1, 2]}], "micro_batch": 1, "grains": 2}
    ]})");
}

Result<Plan> completed(const json& document, const JobSpec& job = motley::job()) {
  MOTLEY_TRY(Plan plan, plan_from_json(document));
  MOTLEY_TRY_VOID(complete(job, fleet(), &plan));
  return plan;
}

TEST(PlanCompletion, APlanWithoutHostsIsSaidToBeNotWhole) {
  const auto plan = plan_from_json(by_hand());
  ASSERT_TRUE(plan);
  const auto named = check_hosts_named(*plan, "hand.json");
  ASSERT_FALSE(named);
  EXPECT_EQ(named.error().code, ErrorCode::kInvalidSpec);
  EXPECT_EQ(named.error().message,
            "/ranks/0: device a/0 has no host: this plan is not whole; `motley plan JOB --score "
            "hand.json -o WHOLE` completes it");
  EXPECT_TRUE(check_hosts_named(*completed(by_hand()), "hand.json"));
}

TEST(PlanCompletion, FillsInAllThatIsLeftOut) {
  const auto plan = completed(by_hand());
  ASSERT_TRUE(plan) << plan.error().to_string();
  EXPECT_EQ(plan->ranks[1].host, "b");
  EXPECT_EQ(plan->ranks[2].type, "card of b");
  EXPECT_EQ(plan->replicas[1].stages[0].shares, (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(plan->replicas[0].stages[0].precision, Precision::kFp32);
  EXPECT_EQ(plan->job_key, profile_job_key(job()));
  EXPECT_TRUE(validate(*plan, job().model));
  EXPECT_EQ(plan->id, plan_id(*plan));
}

TEST(PlanCompletion, AveragesAsOftenAsTheJobSays) {
  JobSpec every_four = job();
  every_four.parallel.sync.across = 4;
  EXPECT_EQ(completed(by_hand(), every_four)->sync.across, 4);
  json document = by_hand();
  document["sync"]["across"] = 8;
  const auto plan = completed(document, every_four);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().message,
            "/sync/across: the plan averages every 8 steps, the job has parallel.sync.across 4");
}

TEST(PlanCompletion, LeavesWhatWasGiven) {
  auto plan = completed(by_hand());
  ASSERT_TRUE(plan);
  plan->owners = even_ownership(*plan, job().model);
  plan->replicas[1].stages[0].shares = {0.75, 0.25};
  plan->owners = even_ownership(*plan, job().model);
  const auto again = completed(to_json(*plan));
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_EQ(again->replicas[1].stages[0].shares, (std::vector<double>{0.75, 0.25}));
  EXPECT_EQ(again->owners.size(), plan->owners.size());
}

TEST(PlanCompletion, RefusesAPrecisionInWhichTheDevicesDoNotCompute) {
  json document = by_hand();
  document["replicas"][1]["stages"][0]["precision"] = "fp64";
  auto plan = completed(document);
  ASSERT_FALSE(plan);
  EXPECT_EQ(
      plan.error().message,
      "/replicas/1/stages/0/precision: the stage is to compute in fp64; its device b/1 computes "
      "this job in fp32");
  JobSpec precise = job();
  precise.train.precision = Precision::kFp64;
  plan = completed(document, precise);
  ASSERT_TRUE(plan) << plan.error().to_string();
  EXPECT_EQ(plan->replicas[0].stages[0].precision, Precision::kFp64);
  document["replicas"][0]["stages"][0]["precision"] = "fp32";
  plan = completed(document, precise);
  ASSERT_FALSE(plan);
  EXPECT_EQ(
      plan.error().message,
      "/replicas/0/stages/0/precision: the stage is to compute in fp32; its device a/0 computes "
      "this job in fp64");
}

TEST(PlanCompletion, UnderAutoAGpuComputesInWhatThePlanSays) {
  FleetSpec fleet = motley::fleet();
  for (DeviceSpec& device : fleet.devices) device.kind = DeviceKind::kCuda;
  json document = by_hand();
  document["replicas"][1]["stages"][0]["precision"] = "bf16";
  Plan plan = *plan_from_json(document);
  ASSERT_TRUE(complete(job(), fleet, &plan));
  EXPECT_EQ(plan.replicas[0].stages[0].precision, Precision::kFp32);
  EXPECT_EQ(plan.replicas[1].stages[0].precision, Precision::kBf16);
}

TEST(PlanCompletion, RefusesWhatDoesNotFitJobAndFleet) {
  const auto error_after = [](const char* pointer, const json& value) {
    json document = by_hand();
    document[json::json_pointer(pointer)] = value;
    const auto plan = completed(document);
    return plan ? "" : plan.error().message;
  };
  EXPECT_EQ(error_after("/global_batch", 8),
            "/global_batch: the plan is for 8 samples a step, the job has train.global_batch 6");
  EXPECT_EQ(error_after("/numerics", "exact"),
            "/numerics: the plan is for exact, the job has train.numerics fast");
  EXPECT_EQ(error_after("/ranks/1/device", "c/0"),
            "/ranks/1: the plan uses device c/0, which is not in fleet.yaml");
  EXPECT_EQ(error_after("/ranks/1/host", "a"),
            "/ranks/1: the plan uses device b/1, which is not in fleet.yaml");
  EXPECT_EQ(error_after("/ranks", json::parse(R"([{"device": "b/1"}, {"device": "a/0"},
                                                  {"device": "b/2"}])")),
            "/ranks/2: ranks of a host, here b, must follow each other");
  EXPECT_EQ(error_after("/replicas/0/stages/0/last_layer", 2),
            "/replicas/0/stages: they have 3 of 4 layers (embedding, blocks, head)");
  EXPECT_EQ(error_after("/replicas/1/stages/0/ranks/1", 9),
            "/replicas/1/stages/0/ranks: rank 9 does not exist");
}

}  // namespace
}  // namespace motley
