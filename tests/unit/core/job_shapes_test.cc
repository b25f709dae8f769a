// Alternatives, limits and arrays of a job file, and what may be changed of a job afterwards.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/spec/job_update.h"
#include "core/spec/json.h"
#include "core/spec/reader.h"

namespace motley {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr const char* kProgram = "version: 1\nname: sweep\nrun: [python3, train.py]\n";

Result<JobSpec> read_program(const std::string& more) {
  return parse_job(kProgram + more, "job.yaml", "/src", {}, JobParts::kAllOrProgram);
}

Result<std::vector<JobSpec>> read_array(const std::string& more) {
  return parse_jobs(kProgram + more, "job.yaml", "/src", {}, JobParts::kAllOrProgram);
}

std::string array_error(const std::string& more) {
  const auto jobs = read_array(more);
  return jobs ? "no error" : jobs.error().to_string();
}

std::vector<std::string> names_of(const std::vector<JobSpec>& jobs) {
  std::vector<std::string> names;
  for (const JobSpec& job : jobs) names.push_back(job.name);
  return names;
}

TEST(JobShapes, AlternativesAndLimitsAreReadAndComeBack) {
  const auto job = read_program(
      "any_of:\n"
      "  - {count: 2, types: [H100], memory: 80GB..}\n"
      "  - {count: 2..8, mix: forbid, limits: {A100: 4, RTX3090: 2}}\n");
  ASSERT_TRUE(job) << job.error().to_string();
  ASSERT_EQ(job->any_of.size(), 2u);
  EXPECT_EQ(job->any_of[0].count, (CountRange{2, 2}));
  EXPECT_FALSE(job->any_of[1].mix);
  EXPECT_THAT(job->any_of[1].limits, ElementsAre(Pair("A100", 4), Pair("RTX3090", 2)));
  EXPECT_EQ(job->any_of[1].key, "any_of.1");
  const auto back = job_from_json(nlohmann::json::parse(to_json(*job).dump()));
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_EQ(to_json(*back), to_json(*job));
  EXPECT_EQ(back->any_of[1].key, "any_of.1");
  EXPECT_FALSE(to_json(*read_program("")).contains("any_of"));
}

TEST(JobShapes, WhatIsWrongWithAlternativesIsSaidAtItsPlace) {
  const auto error = [](const std::string& more) {
    const auto job = read_program(more);
    return job ? "no error" : job.error().to_string();
  };
  EXPECT_THAT(error("any_of: [{count: 1}]\nresources: {devices: {count: 2}}\n"),
              HasSubstr("job.yaml:4:9: 'any_of' and 'resources.devices' exclude each other"));
  EXPECT_THAT(error("any_of: []\n"), HasSubstr("job.yaml:4:9: 'any_of': expected a list"));
  EXPECT_THAT(error("any_of: [{cuont: 1}]\n"), HasSubstr("job.yaml:4:11:"));
  EXPECT_THAT(error("any_of: [{cuont: 1}]\n"), HasSubstr("did you mean 'count'?"));
  EXPECT_THAT(error("resources: {devices: {limits: {A100: -1}}}\n"), HasSubstr("job.yaml:4:38:"));
}

TEST(JobShapes, AnArrayIsManyJobs) {
  const auto range = read_array("array: 3..5\n");
  ASSERT_TRUE(range) << range.error().to_string();
  EXPECT_THAT(names_of(*range), ElementsAre("sweep-3", "sweep-4", "sweep-5"));
  EXPECT_EQ((*range)[1].array, (ArrayTask{4, 3, 0}));
  EXPECT_THAT(names_of(*read_array("array: [1, 4, 7..8]\n")),
              ElementsAre("sweep-1", "sweep-4", "sweep-7", "sweep-8"));
  const auto one_of = read_array("array: {index: 0..9, at_once: 2}\n");
  ASSERT_EQ(one_of->size(), 10u);
  EXPECT_EQ(one_of->back().array, (ArrayTask{9, 10, 2}));
  EXPECT_EQ(job_from_json(to_json(one_of->back()))->array, one_of->back().array);
  EXPECT_THAT(names_of(*read_array("")), ElementsAre("sweep"));
}

TEST(JobShapes, AnArrayGoesOverEveryCombination) {
  const auto jobs = read_array("array: {over: {train.global_batch: [8, 16], env.LR: [a, b, c]}}\n");
  ASSERT_TRUE(jobs) << jobs.error().to_string();
  ASSERT_EQ(jobs->size(), 6u);
  EXPECT_EQ((*jobs)[0].train.global_batch, 8);
  EXPECT_EQ((*jobs)[4].train.global_batch, 16);
  EXPECT_EQ((*jobs)[4].program.env.at("LR"), "b");
  EXPECT_EQ((*jobs)[4].name, "sweep-4");
  EXPECT_EQ((*jobs)[4].array, (ArrayTask{4, 6, 0}));
}

TEST(JobShapes, WhatIsNoArrayIsSaidAtItsPlace) {
  EXPECT_THAT(array_error("array: {over: {train.global_batch: [8, no]}}\n"),
              HasSubstr("job.yaml:4:40: 'global_batch'"));
  EXPECT_THAT(array_error("array: {over: {train.seed: [1]}}\n"),
              HasSubstr("'train.seed' is of no"));
  EXPECT_THAT(array_error("array: {over: {priority: 3}}\n"),
              HasSubstr("expected a list of values"));
  EXPECT_THAT(array_error("array: {over: {array.index: [1]}}\n"), HasSubstr("over itself"));
  EXPECT_THAT(array_error("array: {over: {run.x: [1]}}\n"), HasSubstr("no mapping to set it in"));
  EXPECT_THAT(array_error("array: 0..1000\n"), HasSubstr("job.yaml:4:8: 'array': more than 1000"));
  EXPECT_THAT(array_error("array: [1, 1]\n"), HasSubstr("index 1 is there twice"));
  EXPECT_THAT(array_error("array: 5..2\n"), HasSubstr("expected indices"));
  EXPECT_THAT(array_error("array: {at_once: 2}\n"), HasSubstr("either 'over' or 'index'"));
  EXPECT_THAT(array_error("array: {index: 0..3, at_once: 0}\n"), HasSubstr("'at_once'"));
  EXPECT_THAT(array_error("array: [0]\nname: " + std::string(63, 'n') + "\n"), HasSubstr("name"));
}

TEST(JobShapes, OneJobIsNotReadOfAnArray) {
  const auto job = read_program("array: 0..9\n");
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().to_string(),
            "job.yaml:4:8: 'array' makes several jobs of this file: submit it to the job service "
            "(motley submit), or leave 'array' out");
}

TEST(JobShapes, ComesAfterRangesOfJobs) {
  EXPECT_THAT(read_program("after: [3, 12..14]\n")->service.after, ElementsAre(3, 12, 13, 14));
  EXPECT_THAT(read_program("after: 12..13\n")->service.after, ElementsAre(12, 13));
  for (const char* wrong : {"12..", "..3", "14..12", "1..2000", "0..3", "a..b"})
    EXPECT_FALSE(read_program("after: [" + std::string(wrong) + "]\n")) << wrong;
}

std::string update_error(const JobSpec& job, const std::vector<Override>& changes) {
  const auto changed = updated_job(job, changes);
  return changed ? "no error" : changed.error().to_string();
}

TEST(JobShapes, AJobCanBeGivenOtherValues) {
  const JobSpec job =
      *read_program("resources: {devices: {count: 2, types: [a]}}\nlabels: {x: y}\n");
  const auto changed = updated_job(job, {{"priority", "70"},
                                         {"resources.devices.count", "1..4"},
                                         {"labels.team", "vision"},
                                         {"retry.max_restarts", "1"}});
  ASSERT_TRUE(changed) << changed.error().to_string();
  EXPECT_EQ(changed->service.priority, 70);
  EXPECT_EQ(changed->devices.count, (CountRange{1, 4}));
  EXPECT_THAT(changed->devices.types, ElementsAre("a"));
  EXPECT_THAT(changed->service.labels, ElementsAre(Pair("team", "vision"), Pair("x", "y")));
  EXPECT_EQ(changed->retry.max_restarts, 1);
  EXPECT_THAT(updated_job(job, {{"labels", "{z: 1}"}})->service.labels,
              ElementsAre(Pair("z", "1")));
  const auto either = updated_job(job, {{"any_of", "[{count: 1}, {types: [b]}]"}});
  ASSERT_TRUE(either) << either.error().to_string();
  EXPECT_EQ(either->any_of.size(), 2u);
  EXPECT_FALSE(either->devices.count);
  EXPECT_THAT(update_error(*either, {{"resources.devices.count", "3"}}), HasSubstr("any_of=null"));
  const auto again = updated_job(*either, {{"any_of", "~"}, {"resources.devices.count", "3"}});
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_TRUE(again->any_of.empty());
  EXPECT_EQ(again->devices.count, (CountRange{3, 3}));
}

TEST(JobShapes, WhatCannotBeChangedIsRefusedByName) {
  const JobSpec job = *read_program("");
  EXPECT_THAT(update_error(job, {{"train.global_batch", "8"}}),
              HasSubstr("'train.global_batch' of a job that is submitted cannot be changed"));
  EXPECT_THAT(update_error(job, {{"name", "x"}}), HasSubstr("submit another job"));
  EXPECT_THAT(update_error(job, {{"priority", "101"}}), HasSubstr("--set priority: 'priority'"));
  EXPECT_THAT(update_error(job, {{"resources.devices.cuont", "1"}}), HasSubstr("did you mean"));
  EXPECT_TRUE(concerns_start("resources.devices.count"));
  EXPECT_TRUE(concerns_start("any_of"));
  EXPECT_FALSE(concerns_start("priority"));
}

}  // namespace
}  // namespace motley
