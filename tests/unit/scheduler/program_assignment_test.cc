#include "scheduler/runner/program_assignment.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/spec/json.h"
#include "scheduler/launch/this_host.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

ProgramAssignment assignment_on(const std::vector<std::string>& hosts) {
  ProgramAssignment assignment;
  assignment.epoch = Epoch(2);
  assignment.run = "job/1";
  assignment.directory = "/r/attempts/2";
  assignment.checkpoints = "/r/checkpoints";
  assignment.master_address = "here";
  assignment.master_port = 4000;
  assignment.job.name = "job";
  assignment.job.program.command = {"true"};
  for (const std::string& host : hosts) {
    DeviceSpec device;
    device.id = host + "/" + std::to_string(assignment.fleet.devices.size());
    device.host = host;
    device.type = "card";
    device.uuid = "GPU-" + std::to_string(assignment.fleet.devices.size());
    assignment.fleet.devices.push_back(device);
  }
  return assignment;
}

TEST(ProgramAssignment, IsWrittenAndReadBack) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/program.json";
  ProgramAssignment assignment = assignment_on({"a", "a"});
  assignment.job.train.global_batch = 10;
  assignment.job.program.env = {{"X", "y"}};
  assignment.shares = {{7, 3}, {3, 3}};
  assignment.control = "unix:/here";
  assignment.key_file = "/key";
  assignment.measure = true;
  ASSERT_TRUE(write_program(assignment, path));
  const auto read = read_program(path);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->epoch, Epoch(2));
  EXPECT_EQ(read->run, "job/1");
  EXPECT_EQ(read->master_address, "here");
  EXPECT_EQ(read->master_port, 4000);
  EXPECT_EQ(program_environment(*read, 0, {}).value("MASTER_ADDR"), "here");
  EXPECT_EQ(to_json(read->job), to_json(assignment.job));
  EXPECT_EQ(to_json(read->fleet), to_json(assignment.fleet));
  EXPECT_EQ(read->job.program, assignment.job.program);
  EXPECT_EQ(read->shares, assignment.shares);
  EXPECT_EQ(program_environment(*read, 0, {}).value("MOTLEY_CONTROL"), "unix:/here");
  EXPECT_EQ(program_environment(*read, 0, {}).value("MOTLEY_KEY_FILE"), "/key");
  EXPECT_EQ(program_environment(*read, 0, {}).value("MOTLEY_PLAN"),
            assignment.directory + "/plan.json");
  EXPECT_TRUE(read->measure);
}

TEST(ProgramAssignment, WithoutAShareForEachRankItIsRefused) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/program.json";
  ProgramAssignment assignment = assignment_on({"a", "a"});
  assignment.job.train.global_batch = 10;
  assignment.shares = {{10, 1}};
  ASSERT_TRUE(write_program(assignment, path));
  EXPECT_EQ(read_program(path).error().code, ErrorCode::kInvalidSpec);
}

TEST(ProgramAssignment, LocalRanksAreThoseOfTheHost) {
  const ProgramAssignment assignment = assignment_on({"a", "b", "a", "b", "b"});
  const Environment fourth = program_environment(assignment, 3, {});
  EXPECT_EQ(fourth.value("RANK"), "3");
  EXPECT_EQ(fourth.value("LOCAL_RANK"), "1");
  EXPECT_EQ(fourth.value("LOCAL_WORLD_SIZE"), "3");
  EXPECT_EQ(fourth.value("GROUP_RANK"), "1");
  EXPECT_EQ(fourth.value("WORLD_SIZE"), "5");
  EXPECT_EQ(fourth.value("CUDA_VISIBLE_DEVICES"), "GPU-1,GPU-3,GPU-4") << "its own is GPU-3";
  EXPECT_FALSE(fourth.has("MOTLEY_SAMPLES"));  // the job says nothing of a batch
}

TEST(ProgramAssignment, TheNumberOfARanksGpuIsItsLocalRank) {
  ProgramAssignment assignment = assignment_on({"a", "a", "a"});
  assignment.fleet.devices[0].kind = DeviceKind::kCpu;
  const Environment cpu = program_environment(assignment, 0, {});
  EXPECT_EQ(cpu.value("LOCAL_RANK"), "2");
  EXPECT_EQ(cpu.value("CUDA_VISIBLE_DEVICES"), "");
  const Environment gpu = program_environment(assignment, 2, {});
  EXPECT_EQ(gpu.value("LOCAL_RANK"), "1");
  EXPECT_EQ(gpu.value("CUDA_VISIBLE_DEVICES"), "GPU-1,GPU-2");
}

TEST(ProgramAssignment, ProgramsAreFoundAsWhereTheJobWasStarted) {
  ProgramAssignment assignment = assignment_on({"a"});
  Environment of_mpirun;
  of_mpirun.set("PATH", "/mpi/bin:/venv/bin");
  assignment.launched_on = "elsewhere";
  assignment.search_paths = {{"PATH", "/venv/bin"}};
  EXPECT_EQ(program_environment(assignment, 0, of_mpirun).value("PATH"), "/mpi/bin:/venv/bin");
  assignment.launched_on = own_host_name();
  EXPECT_EQ(program_environment(assignment, 0, of_mpirun).value("PATH"), "/venv/bin");
}

TEST(ProgramAssignment, WhatAnOuterMotleySaidIsNotForThis) {
  Environment outer;
  outer.set("MOTLEY_MEASURE", "/x");
  outer.set("MOTLEY_SAMPLES", "7");
  const Environment environment = program_environment(assignment_on({"a"}), 0, outer);
  EXPECT_FALSE(environment.has("MOTLEY_MEASURE"));
  EXPECT_FALSE(environment.has("MOTLEY_SAMPLES"));
}

TEST(ProgramAssignment, NothingThatSomebodyHasSetIsOverridden) {
  ProgramAssignment assignment = assignment_on({"a"});
  assignment.job.program.env = {
      {"RANK", "mine"}, {"OMP_NUM_THREADS", "3"}, {"CUDA_VISIBLE_DEVICES", "5"}};
  Environment inherited;
  inherited.set("PYTHONUNBUFFERED", "");
  inherited.set("OMP_NUM_THREADS", "9");
  inherited.set("WORLD_SIZE", "8");  // of whoever started us, not of these ranks
  const Environment environment = program_environment(assignment, 0, inherited);
  EXPECT_EQ(environment.value("RANK"), "mine");
  EXPECT_EQ(environment.value("OMP_NUM_THREADS"), "3");
  EXPECT_EQ(environment.value("CUDA_VISIBLE_DEVICES"), "5");
  EXPECT_EQ(environment.value("WORLD_SIZE"), "1");
  EXPECT_EQ(environment.value("PYTHONUNBUFFERED"), "");
}

TEST(ProgramAssignment, OfTheCardsThatAHostShowsRanksSeeTheirOwn) {
  ProgramAssignment assignment = assignment_on({"a", "a"});
  Environment inherited;
  inherited.set("CUDA_VISIBLE_DEVICES", "0,1,2");
  EXPECT_EQ(program_environment(assignment, 1, inherited).value("CUDA_VISIBLE_DEVICES"),
            "GPU-0,GPU-1");
  assignment.fleet.devices.resize(1);
  assignment.fleet.devices[0].uuid = "";  // the first that is shown
  EXPECT_EQ(program_environment(assignment, 0, inherited).value("CUDA_VISIBLE_DEVICES"), "0,1,2");
  EXPECT_EQ(program_environment(assignment, 0, {}).value("CUDA_VISIBLE_DEVICES"), "0");
}

TEST(ProgramAssignment, RanksAreToldTheirShares) {
  ProgramAssignment assignment = assignment_on({"a", "a"});
  assignment.job.train.global_batch = 10;
  assignment.job.train.grain = 4;
  assignment.shares = {{8, 8}, {2, 2}};
  const Environment first = program_environment(assignment, 0, {});
  EXPECT_EQ(first.value("MOTLEY_SAMPLES"), "8");
  EXPECT_EQ(first.value("MOTLEY_GRAINS"), "2");
  EXPECT_EQ(first.value("MOTLEY_MICRO_BATCH"), "8");
  EXPECT_EQ(first.value("MOTLEY_SHARE"), "0.8");
  const Environment last = program_environment(assignment, 1, {});
  EXPECT_EQ(last.value("MOTLEY_GRAINS"), "1");
  EXPECT_EQ(last.value("MOTLEY_SAMPLES"), "2");
}

TEST(ProgramAssignment, AnEmulatedDeviceIsToldItsPace) {
  ProgramAssignment assignment = assignment_on({"a"});
  assignment.fleet.pace_flops = 1e9;
  assignment.fleet.devices[0].paced = PaceSpec{0.5, Nanos(2'000'000), 1.5};
  const auto pace =
      nlohmann::json::parse(program_environment(assignment, 0, {}).value("MOTLEY_PACE"));
  EXPECT_EQ(pace["flops"], 1e9);
  EXPECT_EQ(pace["speed"], 0.5);
  EXPECT_DOUBLE_EQ(pace["overhead_seconds"].get<double>(), 0.002);
  EXPECT_EQ(pace["half_batch"], 1.5);
}

TEST(ProgramAssignment, ModulesOfTheUsersComeBeforeOurs) {
  const ProgramAssignment assignment = assignment_on({"a"});
  Environment inherited;
  inherited.set("PYTHONPATH", "/mine");
  const std::string path = program_environment(assignment, 0, inherited).value("PYTHONPATH");
  EXPECT_TRUE(path.starts_with("/mine:")) << path;
}

TEST(ProgramEnd, IsKept) {
  const testing::TemporaryDirectory directory;
  EXPECT_EQ(read_program_end(directory.path(), 1).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(write_program_end(directory.path(), {1, 0, 9, 77}));
  const auto end = read_program_end(directory.path(), 1);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(end->rank, 1);
  EXPECT_EQ(end->signal, 9);
  EXPECT_EQ(end->at, 77);
  EXPECT_FALSE(end->saved());
  EXPECT_EQ(end->to_string(), "signal 9 (Killed)");
  EXPECT_TRUE(end->missing.empty());
  ASSERT_TRUE(
      write_program_end(directory.path(), {.rank = 1, .status = 66, .missing = "no program"}));
  EXPECT_EQ(read_program_end(directory.path(), 1)->missing, "no program");
  EXPECT_TRUE((ProgramEnd{.status = 75}.saved()));
  EXPECT_FALSE((ProgramEnd{.status = 1}.saved()));
}

}  // namespace
}  // namespace motley
