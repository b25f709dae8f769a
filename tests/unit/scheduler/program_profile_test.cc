#include "scheduler/run/program_profile.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

class ProgramProfile : public ::testing::Test {
 protected:
  JobSpec job_of(std::vector<std::string> command) const {
    JobSpec job;
    job.train.global_batch = 8;
    job.program.command = std::move(command);
    job.program.workdir = place_.path();
    return job;
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(place_.path() + "/" + name) << text;
  }

  const testing::TemporaryDirectory place_;
};

TEST_F(ProgramProfile, OfAScriptThatImportsTheModule) {
  write("with.py", "import os\nimport motley_torch as motley\n");
  write("from.py", "if True:\n    from motley_torch import init\n");
  write("both.py", "import torch, motley_torch as motley\n");
  write("mentions.py", "# motley_torch would do\nprint('import motley_torch')\n");
  write("notes.txt", "import motley_torch\n");
  EXPECT_TRUE(can_be_measured(job_of({"python3", "with.py"})));
  EXPECT_TRUE(can_be_measured(job_of({"python3", "-u", "from.py", "--fast"})));
  EXPECT_TRUE(can_be_measured(job_of({"python3", "both.py"})));
  EXPECT_FALSE(can_be_measured(job_of({"python3", "mentions.py", "notes.txt"})));
  JobSpec without_batch = job_of({"python3", "with.py"});
  without_batch.train.global_batch = 0;
  EXPECT_FALSE(can_be_measured(without_batch));
}

TEST_F(ProgramProfile, OfAModuleThatImportsItSomewhere) {
  for (const char* package : {"pkg", "pkg/parts", "other"})
    std::filesystem::create_directories(place_.path() + "/" + package);
  write("main.py", "from engine import train\n");
  write("engine.py", "import pkg.parts.loop as loop\n");
  write("pkg/parts/loop.py", "import motley_torch\n");
  write("pkg/__main__.py", "from .parts import (loop)\n");
  write("other/alone.py", "import torch\n");
  EXPECT_TRUE(can_be_measured(job_of({"python3", "main.py"})));
  EXPECT_TRUE(can_be_measured(job_of({"python3", "-m", "pkg"})));
  EXPECT_TRUE(can_be_measured(job_of({"python3", "-m", "pkg.parts.loop", "-m", "x"})));
  // Beside modules that do, but none of them is its own.
  EXPECT_FALSE(can_be_measured(job_of({"python3", "-m", "other.alone"})));
  EXPECT_FALSE(can_be_measured(job_of({"python3", "other/alone.py"})));
}

TEST_F(ProgramProfile, IsAnotherWhereAFileThatIsNamedChanged) {
  FleetSpec fleet;
  DeviceSpec card;
  card.id = card.host = card.type = "card";
  fleet.devices.push_back(card);
  write("with.py", "import motley_torch\n");
  write("model.yaml", "width: 64\n");
  const JobSpec job = job_of({"python3", "with.py", "--config=model.yaml"});
  const testing::TemporaryDirectory cache;
  setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
  const std::string told = R"({"version": 1, "update_seconds": 0, "points": [
      {"micro_batch": 1, "seconds": 0.1, "spread": 0.1, "repetitions": 3}]})";
  ASSERT_TRUE(ProgramProfiles(job, fleet).keep(card, told));
  EXPECT_TRUE(ProgramProfiles(job, fleet).find(card));
  write("model.yaml", "width: 256\n");
  EXPECT_FALSE(ProgramProfiles(job, fleet).find(card));
}

TEST_F(ProgramProfile, IsWhatTheProgramTold) {
  const auto profile = program_profile_of(
      R"({"version": 1, "update_seconds": 0.5, "points": [
          {"micro_batch": 1, "seconds": 0.1, "spread": 0.1, "repetitions": 3},
          {"micro_batch": 4, "seconds": 0.3, "spread": 0.1, "repetitions": 3}]})");
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_EQ(profile->update_seconds, 0.5);
  EXPECT_DOUBLE_EQ(profile->curve("model")->seconds_at(4), 0.3);
}

TEST_F(ProgramProfile, WhatIsNoCurveIsRefused) {
  for (const char* points :
       {"", R"({"micro_batch": 0, "seconds": 1, "spread": 0, "repetitions": 3})",
        R"({"micro_batch": 1, "seconds": 0, "spread": 0, "repetitions": 3})",
        R"({"micro_batch": 2, "seconds": 1, "spread": 0, "repetitions": 3},
           {"micro_batch": 2, "seconds": 1, "spread": 0, "repetitions": 3})"})
    EXPECT_FALSE(program_profile_of(R"({"version": 1, "update_seconds": 0, "points": [)" +
                                    std::string(points) + "]}"))
        << points;
  EXPECT_FALSE(program_profile_of("half a fi"));
}

TEST_F(ProgramProfile, EqualCardsOfAHostAreOfOneKind) {
  FleetSpec fleet;
  for (const char* uuid : {"GPU-1", "GPU-2"}) {
    DeviceSpec card;
    card.id = uuid;
    card.host = "elsewhere";
    card.type = "card";
    card.uuid = uuid;
    fleet.devices.push_back(card);
  }
  const JobSpec job = job_of({"python3", "with.py"});
  const ProgramProfiles profiles(job, fleet);
  EXPECT_EQ(profiles.identity(fleet.devices[0]), profiles.identity(fleet.devices[1]));
  fleet.devices[1].type = "other";
  EXPECT_NE(profiles.identity(fleet.devices[0]), profiles.identity(fleet.devices[1]));
}

}  // namespace
}  // namespace motley
