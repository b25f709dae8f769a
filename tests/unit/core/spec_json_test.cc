#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>

#include "core/attempt.h"
#include "core/spec/json.h"
#include "tests/support/json_members.h"

namespace motley {
namespace {

using nlohmann::json;

JobSpec sample_job() {
  JobSpec job;
  job.name = "sample";
  job.source = "jobs/sample.yaml";
  job.fleet_path = "/fleets/lab.yaml";
  job.model = {"gpt", 4, 4, 128, 64, 256};
  job.data = {.text = {"*.md"}, .files = {"/d/a.md", "/d/b.md"}, .held_out = 0.1};
  job.train.global_batch = 32;
  job.train.steps = 300;
  job.train.seed = UINT64_MAX;
  job.checkpoint.every_time = Nanos(600'000'000'000);
  job.devices.count = CountRange{2, 8};
  job.devices.types = {"A100"};
  job.devices.memory.low = Bytes(20'000'000'000);
  return job;
}

TEST(SpecJson, ProgramsRoundTrip) {
  JobSpec job;
  job.name = "program";
  job.program = {{"python3", "train.py"}, "/src", {{"A", "b"}}, {"make"}};
  job.train.global_batch = 8;
  const auto read = job_from_json(to_json(job));
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->program, job.program);
  EXPECT_EQ(to_json(*read), to_json(job));
  EXPECT_FALSE(to_json(sample_job()).contains("program"));
}

JobSpec pinned_job() {
  JobSpec job = sample_job();
  job.pin.replicas = {{.stages = {{0, 2, {"a/0"}, {}, {Recompute::kBlock}, Precision::kBf16},
                                  {3, 5, {"a/1", "b/0"}, {0.25, 0.75}, {}, Precision::kAuto}},
                       .micro_batch = 4,
                       .grains = std::nullopt}};
  job.pin.leave_out = {"old/0"};
  return job;
}

FleetSpec sample_fleet() {
  DeviceSpec paced{.id = "a1/0",
                   .host = "a1",
                   .kind = DeviceKind::kCpu,
                   .type = "card",
                   .uuid = "",
                   .threads = 2,
                   .memory = Bytes(1 << 30),
                   .price_per_hour = 0.5,
                   .paced = PaceSpec{0.37, Nanos(200'000), 0.5}};
  DeviceSpec cuda;
  cuda.id = "b1/0";
  cuda.host = "b1";
  cuda.type = "A100";
  cuda.uuid = "GPU-1";
  cuda.share = ShareSpec{32, 64};
  FleetSpec fleet;
  fleet.source = "lab.yaml";
  fleet.clock = PaceClock::kVirtual;
  fleet.pace_flops = 5e9;
  fleet.devices = {paced, cuda};
  fleet.links = {{.between = {"a1", "b1"}, .bytes_per_second = 1.2e9, .latency = Nanos(60'000)}};
  return fleet;
}

TEST(SpecJson, JobComesBackWhole) {
  const json document = to_json(pinned_job());
  const Result<JobSpec> job = job_from_json(json::parse(document.dump()));
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(to_json(*job), document);
  EXPECT_EQ(job->train.seed, UINT64_MAX);
  EXPECT_EQ(job->devices.count, pinned_job().devices.count);
  EXPECT_EQ(job->pin, pinned_job().pin);
  EXPECT_EQ(first_incompatible_key(*job, pinned_job()), "");
}

TEST(SpecJson, WhatTheServiceGoesByComesBack) {
  JobSpec job = sample_job();
  EXPECT_FALSE(to_json(job).contains("service"));
  job.service.priority = 7;
  job.service.after = {3, 9};
  job.service.labels = {{"team", "vision"}};
  job.service.max_duration = Nanos(5);
  job.service.stop_grace = Nanos(7);
  job.service.preemptible = true;
  const Result<JobSpec> back = job_from_json(json::parse(to_json(job).dump()));
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_EQ(back->service, job.service);
}

TEST(SpecJson, FleetComesBackWhole) {
  const json document = to_json(sample_fleet());
  const Result<FleetSpec> fleet = fleet_from_json(json::parse(document.dump()));
  ASSERT_TRUE(fleet) << fleet.error().to_string();
  EXPECT_EQ(to_json(*fleet), document);
  EXPECT_EQ(fleet->devices[0].paced, sample_fleet().devices[0].paced);
  EXPECT_FALSE(fleet->devices[1].memory);
  EXPECT_EQ(fleet->devices[1].share, (ShareSpec{32, 64}));
}

TEST(SpecJson, AFleetFromBeforeThereWereSharesIsRead) {
  json document = to_json(sample_fleet());
  for (json& device : document["devices"]) device.erase("share");
  const Result<FleetSpec> fleet = fleet_from_json(document);
  ASSERT_TRUE(fleet) << fleet.error().to_string();
  EXPECT_FALSE(fleet->devices[1].share);
}

TEST(SpecJson, AJobFromBeforeThereWasCompressionIsRead) {
  json document = to_json(sample_job());
  EXPECT_EQ(document["parallel"]["compress"], "off");
  EXPECT_EQ(document["parallel"]["sync"]["across"], 1);
  EXPECT_EQ(document["parallel"]["tensor"], nullptr);
  document.erase("parallel");
  document.erase("pin");
  const Result<JobSpec> job = job_from_json(document);
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(job->parallel.compress, CodecSpec{});
}

RC_GTEST_PROP(SpecJson, AnyValidTrainSectionComesBack, ()) {
  JobSpec job = sample_job();
  TrainSpec& train = job.train;
  train.global_batch = *rc::gen::inRange(1, 1 << 20);
  if (*rc::gen::arbitrary<bool>()) train.grain = *rc::gen::inRange(1, train.global_batch + 1);
  train.steps = *rc::gen::inRange<int64_t>(1, TrainSpec::kMostSteps + 1);
  train.seed = *rc::gen::arbitrary<uint64_t>();
  train.optimizer.lr = static_cast<double>(*rc::gen::inRange<int64_t>(1, 1'000'000'007)) / 3e9;
  train.schedule.min_lr = train.optimizer.lr * 0.1;
  train.precision = *rc::gen::element(Precision::kAuto, Precision::kFp32, Precision::kFp64,
                                      Precision::kBf16, Precision::kFp16);
  if (train.precision == Precision::kFp16 && *rc::gen::arbitrary<bool>())
    train.loss_scale = int64_t{1} << *rc::gen::inRange(0, 16);
  if (train.grain) train.numerics = *rc::gen::element(Numerics::kFast, Numerics::kExact);
  const Result<JobSpec> back = job_from_json(json::parse(to_json(job).dump()));
  RC_ASSERT(back.has_value());
  RC_ASSERT(to_json(*back) == to_json(job));
  RC_ASSERT(back->train.optimizer == train.optimizer);
}

TEST(SpecJson, PrecisionsByTypeComeBack) {
  JobSpec job = sample_job();
  job.train.precision_by_type = {{"A100", Precision::kBf16}, {"V100-16GB", Precision::kFp16}};
  job.train.loss_scale = 256;
  const Result<JobSpec> back = job_from_json(to_json(job));
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_EQ(back->train.precision_by_type, job.train.precision_by_type);
  EXPECT_EQ(back->train.loss_scale, job.train.loss_scale);
}

std::string try_job(const json& document) {
  const Result<JobSpec> job = job_from_json(document);
  return job ? "" : job.error().to_string();
}

TEST(SpecJson, EveryRemovedMemberIsMissed) {
  testing::expect_members_are_needed(
      to_json(pinned_job()), try_job,
      {"data", "pipeline", "tensor", "recompute", "shard_optimizer", "host_optimizer"});
}

TEST(SpecJson, EveryMemberHasItsType) {
  testing::expect_members_are_typed(to_json(pinned_job()), try_job);
}

TEST(SpecJson, NamesThePointerOfAFault) {
  using Pointer = json::json_pointer;
  const std::tuple<const char*, json, const char*> cases[] = {
      {"/version", 2, "/version: this program reads version 1, found 2"},
      {"/train/globl_batch", 1, "/train: unknown key 'globl_batch' (did you mean 'global_batch'?)"},
      {"/train/steps", "10", "/train/steps: expected an integer, found a string"},
      {"/train/steps", 1e3, "/train/steps: expected an integer of 64 bits, found 1000.0"},
      {"/train/steps", 0, "/train/steps: 'steps' must be from 1 to 1000000000000"},
      {"/train/global_batch", 4294967297,
       "/train/global_batch: expected an integer of 32 bits, found 4294967297"},
      {"/train/seed", -1, "/train/seed: expected an integer of 64 bits, found -1"},
      {"/parallel/sync/across", 0,
       "/parallel/sync/across: 'across' must be from 1 to 1000000 steps"},
      {"/parallel/compress", "int7", "/parallel/compress: unknown word 'int7'"},
      {"/train/numerics", "exakt", "/train/numerics: unknown word 'exakt'"},
      {"/train/optimizer/betas", {0.9}, "/train/optimizer/betas: expected two numbers"},
      {"/data/files/1", 7, "/data/files/1: expected a string, found a number"},
      {"/train/grain", 33, "/train/grain: 'grain' must be from 1 to global_batch (32), found 33"},
      {"/model/vocab", 12,
       "/model/vocab: 'vocab' must be at least 256 for the tokenizer bytes, found 12"},
  };
  for (const auto& [pointer, value, error] : cases) {
    json document = to_json(sample_job());
    document[Pointer(pointer)] = value;
    EXPECT_EQ(try_job(document), error);
  }
  EXPECT_EQ(job_from_json(json::array()).error().to_string(),
            "/: expected an object, found an array");
}

TEST(SpecJson, NamesTheKeyThatForbidsContinuing) {
  const JobSpec before = sample_job();
  const auto key_after = [&](auto change) {
    JobSpec after = before;
    change(after);
    return first_incompatible_key(before, after);
  };
  EXPECT_EQ(key_after([](JobSpec& job) { job.train.steps = 9999; }), "");
  EXPECT_EQ(key_after([](JobSpec& job) { job.train.eval.every = 3; }), "");
  EXPECT_EQ(key_after([](JobSpec& job) { job.checkpoint.keep = 9; }), "");
  EXPECT_EQ(key_after([](JobSpec& job) { job.fleet_path = "/other.yaml"; }), "");
  EXPECT_EQ(key_after([](JobSpec& job) { job.train.global_batch = 64; }), "train.global_batch");
  EXPECT_EQ(key_after([](JobSpec& job) { job.train.grain = 2; }), "train.grain");
  EXPECT_EQ(key_after([](JobSpec& job) { job.train.optimizer.lr = 1; }), "train.optimizer.lr");
  EXPECT_EQ(key_after([](JobSpec& job) { job.train.optimizer.beta2 = 0; }),
            "train.optimizer.betas");
  EXPECT_EQ(key_after([](JobSpec& job) { job.train.schedule.warmup = 1; }),
            "train.schedule.warmup");
  EXPECT_EQ(key_after([](JobSpec& job) { job.train.seed = 1; }), "train.seed");
  EXPECT_EQ(key_after([](JobSpec& job) { job.model.width = 256; }), "model.width");
  EXPECT_EQ(key_after([](JobSpec& job) { job.data.files.pop_back(); }), "data.text");
}

ProfileRequest sample_request() {
  return {.epoch = Epoch(3),
          .job = sample_job(),
          .fleet = sample_fleet(),
          .control = "unix:/run/x",
          .key_file = "/run/key"};
}

TEST(AttemptJson, ProfileRequestComesBackWhole) {
  const ProfileRequest request = sample_request();
  const Result<ProfileRequest> back = profile_request_from_json(to_json(request));
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_EQ(to_json(*back), to_json(request));
  EXPECT_EQ(back->epoch, Epoch(3));
}

TEST(AttemptJson, FaultsOfItsPartsNameTheWholePath) {
  json document = to_json(sample_request());
  document["job"]["train"]["steps"] = "many";
  EXPECT_EQ(profile_request_from_json(document).error().message,
            "/job/train/steps: expected an integer, found a string");
  document = to_json(sample_request());
  document["epoch"] = 0;
  EXPECT_EQ(profile_request_from_json(document).error().message, "/epoch: epochs count from 1");
}

}  // namespace
}  // namespace motley
