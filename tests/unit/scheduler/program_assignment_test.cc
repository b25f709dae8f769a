#include "scheduler/runner/program_assignment.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/spec/json.h"
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
}

TEST(ProgramAssignment, LocalRanksAreThoseOfTheHost) {
  const ProgramAssignment assignment = assignment_on({"a", "b", "a", "b", "b"});
  const Environment fourth = program_environment(assignment, 3, {});
  EXPECT_EQ(fourth.value("RANK"), "3");
  EXPECT_EQ(fourth.value("LOCAL_RANK"), "1");
  EXPECT_EQ(fourth.value("LOCAL_WORLD_SIZE"), "3");
  EXPECT_EQ(fourth.value("GROUP_RANK"), "1");
  EXPECT_EQ(fourth.value("WORLD_SIZE"), "5");
  EXPECT_EQ(fourth.value("CUDA_VISIBLE_DEVICES"), "GPU-3");
  EXPECT_FALSE(fourth.has("MOTLEY_SAMPLES"));  // the job says nothing of a batch
}

TEST(ProgramAssignment, NothingThatSomebodyHasSetIsOverridden) {
  ProgramAssignment assignment = assignment_on({"a"});
  assignment.job.program.env = {{"RANK", "mine"}, {"OMP_NUM_THREADS", "3"}};
  Environment inherited;
  inherited.set("CUDA_VISIBLE_DEVICES", "5");
  inherited.set("OMP_NUM_THREADS", "9");
  inherited.set("WORLD_SIZE", "8");  // of whoever started us, not of these ranks
  const Environment environment = program_environment(assignment, 0, inherited);
  EXPECT_EQ(environment.value("RANK"), "mine");
  EXPECT_EQ(environment.value("OMP_NUM_THREADS"), "3");
  EXPECT_EQ(environment.value("CUDA_VISIBLE_DEVICES"), "5");
  EXPECT_EQ(environment.value("WORLD_SIZE"), "1");
}

/// However a batch is cut: every sample is somebody's, and grains differ by one at most.
TEST(ProgramAssignment, SharesAreAsEqualAsGrainsAllow) {
  for (int ranks = 1; ranks <= 5; ++ranks)
    for (int batch = 1; batch <= 23; ++batch)
      for (int grain = 1; grain <= std::min(batch, 6); ++grain) {
        ProgramAssignment assignment =
            assignment_on(std::vector<std::string>(static_cast<size_t>(ranks), "a"));
        assignment.job.train.global_batch = batch;
        assignment.job.train.grain = grain;
        int samples = 0, least = batch, most = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const int grains = grains_of(assignment, rank);
          least = std::min(least, grains);
          most = std::max(most, grains);
          const Environment environment = program_environment(assignment, rank, {});
          EXPECT_EQ(environment.value("MOTLEY_GRAINS"), std::to_string(grains));
          samples += std::stoi(environment.value("MOTLEY_SAMPLES"));
        }
        ASSERT_EQ(samples, batch);
        ASSERT_LE(most - least, 1);
      }
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
  EXPECT_TRUE((ProgramEnd{.status = 75}.saved()));
  EXPECT_FALSE((ProgramEnd{.status = 1}.saved()));
}

}  // namespace
}  // namespace motley
