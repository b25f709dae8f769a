// `model: {preset: …}` in a job.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "core/spec/json.h"
#include "core/spec/model_presets.h"
#include "core/spec/reader.h"
#include "tests/support/paths.h"

namespace motley {
namespace {

std::string configs() { return (testing::source_dir() / "configs").string(); }

/// A job over text that is long enough for a context of 1024.
Result<JobSpec> job_with_model(const std::string& model,
                               const std::vector<Override>& overrides = {}) {
  return parse_job("version: 1\nname: presets\nmodel: " + model +
                       "\ndata: {text: [../core/*.md]}\ntrain: {global_batch: 2, steps: 1}\n",
                   "job.yaml", configs(), overrides);
}

ModelSpec model_of(const std::string& model, const std::vector<Override>& overrides = {}) {
  const Result<JobSpec> job = job_with_model(model, overrides);
  if (!job) ADD_FAILURE() << job.error().to_string();
  return job ? job->model : ModelSpec{};
}

std::string refusal_of_model(const std::string& model) {
  const Result<JobSpec> job = job_with_model(model);
  return job ? "no error" : job.error().to_string();
}

TEST(ModelPreset, HaveTheParametersThatWerePublished) {
  // Counts of the released weights, tied head counted once.
  const std::pair<const char*, int64_t> published[] = {{"gpt2-124m", 124'439'808},
                                                       {"gpt2-350m", 354'823'168},
                                                       {"gpt2-774m", 774'030'080},
                                                       {"gpt2-1558m", 1'557'611'200}};
  for (const auto& [name, parameters] : published)
    EXPECT_EQ(parameter_count(model_of("{preset: " + std::string(name) + "}")), parameters) << name;
}

TEST(ModelPreset, EveryFileOfConfigsModelsIsOne) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(configs() + "/models")) {
    ++files;
    const std::string name = entry.path().stem().string();
    const auto presets = model_presets();
    EXPECT_TRUE(std::any_of(presets.begin(), presets.end(),
                            [&](const ModelPreset& preset) { return preset.name == name; }))
        << name << " is missing in core/CMakeLists.txt";
  }
  EXPECT_EQ(files, model_presets().size());
}

TEST(ModelPreset, IsTheModelWrittenOut) {
  EXPECT_EQ(model_of("{preset: gpt2-350m}"),
            model_of("{type: gpt, layers: 24, heads: 16, width: 1024, context: 1024, "
                     "vocab: 50257}"));
}

TEST(ModelPreset, KeysBesideItCountWhereverTheyStand) {
  ModelSpec expected = model_of("{preset: gpt2-124m}");
  expected.context = 512;
  expected.dropout = 0.1;
  EXPECT_EQ(model_of("{preset: gpt2-124m, context: 512, dropout: 0.1}"), expected);
  EXPECT_EQ(model_of("{dropout: 0.1, context: 512, preset: gpt2-124m}"), expected);
  EXPECT_EQ(
      model_of("{preset: gpt2-774m}",
               {{"model.preset", "gpt2-124m"}, {"model.context", "512"}, {"model.dropout", "0.1"}}),
      expected);
}

TEST(ModelPreset, JobJsonHoldsTheWholeModel) {
  const Result<JobSpec> job = job_with_model("{preset: gpt2-124m, context: 256}");
  ASSERT_TRUE(job) << job.error().to_string();
  const nlohmann::json model = to_json(*job)["model"];
  EXPECT_EQ(model, nlohmann::json({{"type", "gpt"},
                                   {"layers", 12},
                                   {"heads", 12},
                                   {"width", 768},
                                   {"context", 256},
                                   {"vocab", 50257},
                                   {"dropout", 0.0}}));
}

TEST(ModelPreset, ErrorsNameThePlaceAndTheChoices) {
  const std::string choices = "gpt2-124m, gpt2-350m, gpt2-774m or gpt2-1558m";
  EXPECT_EQ(refusal_of_model("{preset: gpt2-125m}"),
            "job.yaml:3:17: 'preset': expected " + choices +
                ", found 'gpt2-125m' (did you mean 'gpt2-124m'?)");
  EXPECT_EQ(refusal_of_model("{preset: llama}"),
            "job.yaml:3:17: 'preset': expected " + choices + ", found 'llama'");
  EXPECT_EQ(refusal_of_model("{preset: [gpt2-124m]}"),
            "job.yaml:3:17: 'preset': expected " + choices + ", found a list");
  EXPECT_EQ(refusal_of_model("{presets: gpt2-124m}"),
            "job.yaml:3:9: unknown key 'presets' (did you mean 'preset'?)");
  EXPECT_EQ(refusal_of_model("{preset: gpt2-124m, widht: 64}"),
            "job.yaml:3:28: unknown key 'widht' (did you mean 'width'?)");
  // Where a value of the preset does not fit one beside it.
  EXPECT_EQ(refusal_of_model("{preset: gpt2-124m, heads: 7}"),
            refusal_of_model("{layers: 12, heads: 7, width: 768, context: 1024, vocab: 50257}"));
  EXPECT_NE(refusal_of_model("{preset: gpt2-124m, heads: 7}"), "no error");
}

TEST(ModelPreset, TheShippedJobTrainsOne) {
  const Result<JobSpec> job = read_job(configs() + "/jobs/gpt2-124m.yaml");
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(parameter_count(job->model), 124'439'808);
  EXPECT_EQ(int64_t{job->train.global_batch} * job->model.context, 65'536);
}

}  // namespace
}  // namespace motley
