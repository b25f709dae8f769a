#include "scheduler/launch/slurm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/spec/catalog_reader.h"
#include "core/spec/reader.h"
#include "scheduler/run/find_fleet.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> texts(const std::vector<SlurmGpus>& gpus) {
  std::vector<std::string> found;
  for (const SlurmGpus& each : gpus) found.push_back(each.type + "*" + std::to_string(each.count));
  return found;
}

TEST(SlurmGres, EverythingSlurmWrites) {
  EXPECT_THAT(texts(gpus_of_gres("gpu:a100:2")), ElementsAre("a100*2"));
  EXPECT_THAT(texts(gpus_of_gres("gpu:a100:2(S:0-1),gpu:rtx3090:1(S:0,2)")),
              ElementsAre("a100*2", "rtx3090*1"));
  EXPECT_THAT(texts(gpus_of_gres("gpu:4")), ElementsAre("*4"));
  EXPECT_THAT(texts(gpus_of_gres("gpu:a100")), ElementsAre("a100*1"));
  EXPECT_THAT(texts(gpus_of_gres("gpu")), ElementsAre("*1"));
  EXPECT_THAT(texts(gpus_of_gres("craynetwork:4,gpu:t4:1,shard:8")), ElementsAre("t4*1"));
  EXPECT_THAT(texts(gpus_of_gres("gpu:a100:0")), ElementsAre());
  EXPECT_THAT(texts(gpus_of_gres("(null)")), ElementsAre());
  EXPECT_THAT(texts(gpus_of_gres("")), ElementsAre());
}

TEST(SlurmNodes, LinesOfSinfo) {
  const auto nodes = parse_sinfo("a1|gpu:a100:2(S:0)|a100,ib|idle\nc1|(null)|(null)|down*\n");
  ASSERT_TRUE(nodes);
  ASSERT_EQ(nodes->size(), 2u);
  EXPECT_EQ((*nodes)[0].name, "a1");
  EXPECT_THAT((*nodes)[0].features, ElementsAre("a100", "ib"));
  EXPECT_THAT((*nodes)[1].features, ElementsAre());
  EXPECT_EQ((*nodes)[1].state, "down*");
  EXPECT_FALSE(parse_sinfo("a1|gpu:a100:2\n"));
}

TEST(SlurmMix, WhatPeopleAskFor) {
  const auto mix = parse_mix("a100:1,rtx3090:2");
  ASSERT_TRUE(mix);
  EXPECT_EQ((*mix)[0].feature, "a100");
  EXPECT_EQ((*mix)[1].nodes, 2);
  EXPECT_EQ(parse_mix("3")->front().nodes, 3);
  // What would end the constraint's quotes, or be another option, is no feature.
  for (const char* wrong : {"", "a100", "a100:0", "a100:-1", "a100:x", ":2", "3,4", "3,a100:1",
                            "a100:1,3", "a\":1", "a b:1", "$(x):1", "a100:1,"})
    EXPECT_FALSE(parse_mix(wrong)) << wrong;
}

SlurmScript script() {
  SlurmScript made;
  made.name = "job";
  made.mix = {{"a100", 1}, {"rtx3090", 2}};
  made.program = "/opt/it's/motley";
  made.directory = "/data";
  made.job_file = "/data/a job.yaml";
  return made;
}

TEST(SlurmScript, AsksForTheMix) {
  const std::string text = sbatch_text(script());
  EXPECT_THAT(text, HasSubstr("#SBATCH --nodes=3\n"));
  EXPECT_THAT(text, HasSubstr("#SBATCH --constraint=\"[a100*1&rtx3090*2]\"\n"));
  EXPECT_THAT(text, HasSubstr("job='/data/a job.yaml'\n"));
  EXPECT_THAT(text, HasSubstr("motley='/opt/it'\\''s/motley'\n"));
  SlurmScript one = script();
  one.directory = "/data/100%";
  EXPECT_THAT(sbatch_text(one),
              HasSubstr("#SBATCH --output=\"/data/100%%/" + one.name + "-%j.log\"\n"));
  one.mix = {{"a100", 2}};
  EXPECT_THAT(sbatch_text(one), HasSubstr("#SBATCH --constraint=\"a100\"\n"));
  one.mix = {{"", 4}};
  EXPECT_THAT(sbatch_text(one), Not(HasSubstr("--constraint")));
  EXPECT_THAT(sbatch_text(one), HasSubstr("#SBATCH --nodes=4\n"));
}

TEST(SlurmTime, AsSbatchTakesIt) {
  const std::pair<const char*, int64_t> known[] = {
      {"5", 300},         {"5:30", 330},         {"1:00:00", 3600}, {"2-0", 172'800},
      {"1-2:30", 95'400}, {"1-0:00:10", 86'410}, {"0", 0},          {"UNLIMITED", 0}};
  for (const auto& [text, seconds] : known) {
    const auto read = parse_slurm_time(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(*read, seconds) << text;
  }
  for (const char* wrong : {"", "x", "1:2:3:4", "-5", "1-", "4h", "1:00 --wrap=x"})
    EXPECT_FALSE(parse_slurm_time(wrong)) << wrong;
}

/// The script among programs that say what they are asked, and a `motley` that does `on_init`.
class SlurmScriptRuns : public ::testing::Test {
 protected:
  int run(const std::string& on_init) {
    const std::string at = directory_.path();
    program("scontrol", "echo scontrol \"$1\" >>'" + at + "/said'");
    program("motley",
            "echo motley \"$1\" >>'" + at + "/said'\n[ \"$1\" = run ] || { " + on_init + "; }\n");
    SlurmScript made = script();
    made.program = at + "/motley";
    made.directory = at;
    std::ofstream(at + "/job.sbatch") << sbatch_text(made);
    const std::string command = "cd '" + at + "' && PATH='" + at +
                                "':$PATH SLURM_JOB_ID=7 SLURM_JOB_NODELIST=a bash job.sbatch 2>err";
    const int status = std::system(command.c_str());  // NOLINT: one thread
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string text_of(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(directory_.path() + "/" + name).rdbuf();
    return text.str();
  }

 private:
  void program(const std::string& name, const std::string& text) {
    const std::string path = directory_.path() + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  testing::TemporaryDirectory directory_;
};

TEST_F(SlurmScriptRuns, FleetThenTraining) {
  EXPECT_EQ(run("true"), 0) << text_of("err");
  EXPECT_EQ(text_of("said"), "scontrol show\nmotley fleet\nmotley run\n");
}

TEST_F(SlurmScriptRuns, OneThatIsWarnedBeforeItTrainsIsNotQueuedAgain) {
  EXPECT_EQ(run("kill -USR1 $PPID"), 75);
  EXPECT_THAT(text_of("err"), HasSubstr("--grace"));
  EXPECT_EQ(text_of("said"), "scontrol show\nmotley fleet\n");
}

TEST(FleetFile, OfSlurmIsOneThatCanBeRead) {
  const std::vector<SlurmNode> nodes = {{"a1", {{"a100-40gb", 2}, {"odd name", 1}}, {}, "idle"},
                                        {"c1", {}, {}, "mix"},
                                        {"7", {{"", 3}}, {}, "idle"}};
  const auto catalog = built_in_catalog();
  ASSERT_TRUE(catalog);
  const auto fleet = parse_fleet(fleet_yaml(hosts_of_slurm(nodes, *catalog)), "written");
  ASSERT_TRUE(fleet) << fleet.error().to_string();
  ASSERT_EQ(fleet->devices.size(), 7u);
  EXPECT_EQ(fleet->devices[0].id, "a1/0");
  EXPECT_GE(fleet->devices[0].memory.value_or(Bytes(0)), Bytes(39'000'000'000));
  EXPECT_EQ(fleet->devices[2].type, "odd name");
  EXPECT_FALSE(fleet->devices[2].memory);
  EXPECT_EQ(fleet->devices[3].kind, DeviceKind::kCpu);
  EXPECT_EQ(fleet->devices[6].id, "7/2");
}

}  // namespace
}  // namespace motley
