#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "core/spec/pin_fault.h"
#include "core/spec/reader.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

using ::testing::ElementsAre;

std::string config(const std::string& name) {
  return (testing::source_dir() / "configs" / name).string();
}

constexpr const char* kJob = R"(version: 1
name: test-job
model: {type: gpt, layers: 2, heads: 2, width: 16, context: 8}
data: {text: [quickstart.yaml]}
train:
  global_batch: 8
  grain: 2
  steps: 10
)";

/// kJob with a part replaced; with an empty part, something added at its end.
std::string job_with(const std::string& part, const std::string& replacement) {
  std::string text = kJob;
  if (part.empty()) return text + replacement;
  const size_t at = text.find(part);
  if (at == std::string::npos) ADD_FAILURE() << "not in the job: " << part;
  return text.replace(at, part.size(), replacement);
}

Result<JobSpec> read_text(const std::string& text, const std::vector<Override>& overrides = {}) {
  return parse_job(text, "job.yaml", config("jobs"), overrides);
}

std::string job_error_of(const std::string& text, const std::vector<Override>& overrides = {}) {
  const Result<JobSpec> job = read_text(text, overrides);
  return job ? "no error" : job.error().to_string();
}

TEST(JobReader, ReadsTheShippedJobs) {
  for (const char* name :
       {"jobs/hybrid.yaml", "jobs/quickstart.yaml", "jobs/uneven.yaml", "jobs/unlike.yaml"}) {
    const Result<JobSpec> job = read_job(config(name));
    ASSERT_TRUE(job) << job.error().to_string();
    EXPECT_GT(job->data.files.size(), 10u);
    EXPECT_TRUE(std::filesystem::exists(job->fleet_path)) << job->fleet_path;
    const Result<FleetSpec> fleet = read_fleet(job->fleet_path);
    ASSERT_TRUE(fleet) << fleet.error().to_string();
    EXPECT_GE(fleet->devices.size(), 3u);
    EXPECT_GE(parameter_count(job->model), 500'000);
    EXPECT_LE(parameter_count(job->model), 3'000'000);
  }
}

TEST(JobReader, FillsInDefaults) {
  const Result<JobSpec> job = read_text(kJob);
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(job->model.vocab, 256);
  EXPECT_EQ(job->source, "job.yaml");
  EXPECT_EQ(job->fleet_path, "");
  EXPECT_EQ(job->checkpoint.dir, "");
  EXPECT_EQ(job->train.seed, 1337u);
  EXPECT_EQ(job->train.numerics, Numerics::kFast);
  EXPECT_FALSE(job->devices.count);
  EXPECT_TRUE(job->devices.mix);
  EXPECT_THAT(job->data.files, ElementsAre(config("jobs/quickstart.yaml")));
  EXPECT_EQ(read_text(job_with("name: test-job\n", ""))->name, "job");
}

TEST(JobReader, ReadsEveryKey) {
  const Result<JobSpec> job = read_text(R"(version: 1
name: all.keys_1
fleet: ../fleets/uneven.yaml
model: {type: gpt, layers: 2, heads: 4, width: 64, context: 32, vocab: 300}
data: {text: [uneven.yaml, "quick*.yaml", "une*.yaml"], tokenizer: bytes, held_out: 0.1}
train:
  global_batch: 64
  grain: 4
  steps: 2k
  optimizer: {type: adamw, lr: 6.0e-4, betas: [0.8, 0.99], eps: 1e-6, weight_decay: 0, clip: 0}
  schedule: {type: constant, warmup: 100, min_lr: 6.0e-5}
  precision: fp32
  numerics: exact
  seed: 7
  eval: {every: 250, samples: 4}
checkpoint: {every: 10m, keep: 5, dir: ../../out}
resources:
  devices: {count: 2..8, types: [A100, RTX3090], memory: 20GB.., mix: forbid}
parallel: {data: auto, pipeline: 1, tensor: auto, recompute: off, shard_optimizer: on, host_optimizer: off, compress: off}
pin: {}
retry: {max_restarts: 2, exclude_failed_devices: false}
)");
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(job->name, "all.keys_1");
  EXPECT_EQ(job->fleet_path, config("fleets/uneven.yaml"));
  EXPECT_EQ(job->model, (ModelSpec{"gpt", 2, 4, 64, 32, 300}));
  EXPECT_THAT(job->data.files,
              ElementsAre(config("jobs/quickstart.yaml"), config("jobs/uneven.yaml")));
  ASSERT_EQ(job->data.file_places.size(), 2u);
  EXPECT_EQ(job->data.file_places[0].line, job->data.file_places[1].line);
  EXPECT_GT(job->data.file_places[0].column, job->data.file_places[1].column);
  EXPECT_DOUBLE_EQ(job->data.held_out, 0.1);
  EXPECT_EQ(job->train.global_batch, 64);
  EXPECT_EQ(job->train.grain, 4);
  EXPECT_EQ(job->train.steps, 2000);
  EXPECT_EQ(job->train.optimizer, (OptimizerSpec{"adamw", 6e-4, 0.8, 0.99, 1e-6, 0, 0}));
  EXPECT_EQ(job->train.schedule, (ScheduleSpec{"constant", 100, 6e-5}));
  EXPECT_EQ(job->train.precision, Precision::kFp32);
  EXPECT_EQ(job->train.numerics, Numerics::kExact);
  EXPECT_EQ(job->train.seed, 7u);
  EXPECT_EQ(job->train.eval.every, 250);
  EXPECT_EQ(job->train.eval.samples, 4);
  EXPECT_EQ(job->checkpoint.every_steps, 0);
  EXPECT_EQ(job->checkpoint.every_time, Nanos(600'000'000'000));
  EXPECT_EQ(job->checkpoint.keep, 5);
  EXPECT_EQ(job->checkpoint.dir, (testing::source_dir() / "out").string());
  EXPECT_EQ(job->devices.count, (CountRange{2, 8}));
  EXPECT_THAT(job->devices.types, ElementsAre("A100", "RTX3090"));
  EXPECT_EQ(job->devices.memory, (BytesRange{Bytes(20'000'000'000), Bytes(INT64_MAX)}));
  EXPECT_FALSE(job->devices.mix);
  EXPECT_FALSE(job->parallel.recompute);
  EXPECT_EQ(job->parallel.shard_optimizer, ShardOptimizer::kOn);
  EXPECT_FALSE(job->parallel.host_optimizer);
  EXPECT_EQ(job->retry.max_restarts, 2);
  EXPECT_FALSE(job->retry.exclude_failed_devices);
}

TEST(JobReader, TokensBecomeSteps) {
  EXPECT_EQ(read_text(job_with("steps: 10", "tokens: 640"))->train.steps, 10);  // 8 x 8 a step
  EXPECT_EQ(read_text(job_with("steps: 10", "tokens: 641"))->train.steps, 11);
  EXPECT_EQ(read_text(job_with("steps: 10", "tokens: 10B"))->train.steps, 156'250'000);
}

struct BadJob {
  const char* part;
  const char* replacement;
  const char* error;
};

void expect_errors(std::span<const BadJob> cases) {
  for (const BadJob& bad : cases)
    EXPECT_EQ(job_error_of(job_with(bad.part, bad.replacement)), bad.error)
        << bad.part << " -> " << bad.replacement;
}

TEST(JobReader, NamesUnknownKeys) {
  const BadJob cases[] = {
      {"  global_batch: 8", "  globl_batch: 8",
       "job.yaml:6:3: unknown key 'globl_batch' (did you mean 'global_batch'?)"},
      {"", "trian: {}\n", "job.yaml:9:1: unknown key 'trian' (did you mean 'train'?)"},
      {"heads: 2", "head: 2", "job.yaml:3:31: unknown key 'head' (did you mean 'heads'?)"},
      {"", "  optimizer: {learning_rate: 1}\n",
       "job.yaml:9:15: unknown key 'learning_rate' (allowed here: type, lr, betas, eps, "
       "weight_decay, clip)"},
      {"", "<<: {a: 1}\n",
       "job.yaml:9:1: unknown key '<<' (allowed here: version, name, fleet, model, data, train, "
       "checkpoint, resources, any_of, array, parallel, pin, retry, priority, queue, after, "
       "labels, "
       "max_duration, preemptible, stop_grace, run, workdir, env, setup)"},
      {"", "\"a\\nb\": 1\n",
       "job.yaml:9:1: unknown key 'a\\nb' (allowed here: version, name, fleet, model, data, train, "
       "checkpoint, resources, any_of, array, parallel, pin, retry, priority, queue, after, "
       "labels, "
       "max_duration, preemptible, stop_grace, run, workdir, env, setup)"},
  };
  expect_errors(cases);
}

TEST(JobReader, SaysWhatWasExpectedAndFound) {
  const BadJob cases[] = {
      {"steps: 10", "steps: ten",
       "job.yaml:8:10: 'steps': expected an integer from 1 to 1000000000000, found 'ten'"},
      {"steps: 10", "steps: \"10\"",
       "job.yaml:8:10: 'steps': expected an integer from 1 to 1000000000000, found the text '10'"},
      {"steps: 10", "steps: [10]",
       "job.yaml:8:10: 'steps': expected an integer from 1 to 1000000000000, found a list"},
      {"steps: 10", "steps: {a: 1}",
       "job.yaml:8:10: 'steps': expected an integer from 1 to 1000000000000, found a mapping"},
      {"steps: 10", "steps:",
       "job.yaml:8:3: 'steps': expected an integer from 1 to 1000000000000, found nothing"},
      {"steps: 10", "steps: 10.5", "job.yaml:8:10: 'steps': '10.5' is not a whole number"},
      {"global_batch: 8", "global_batch: 8.5",
       "job.yaml:6:17: 'global_batch': expected an integer from 1 to 16777216, found '8.5'"},
      {"global_batch: 8", "global_batch: 0x8",
       "job.yaml:6:17: 'global_batch': expected an integer from 1 to 16777216, found '0x8'"},
      {"{type: gpt, layers: 2, heads: 2, width: 16, context: 8}", "gpt2",
       "job.yaml:3:8: expected a mapping of keys, found 'gpt2'"},
      {"[quickstart.yaml]", "{a: b}",
       "job.yaml:4:14: 'text': expected a text or a list of texts, found a mapping"},
      {"[quickstart.yaml]", "[[a]]",
       "job.yaml:4:15: 'text': expected a text or a list of texts, found a list"},
      {"[quickstart.yaml]", "[]",
       "job.yaml:4:14: 'text': expected a text or a list of texts, found an empty list"},
      {"type: gpt", "type: bert", "job.yaml:3:15: 'type': expected gpt, found 'bert'"},
      {"", "  numerics: exakt\n",
       "job.yaml:9:13: 'numerics': expected fast or exact, found 'exakt' (did you mean 'exact'?)"},
      {"", "  optimizer: {lr: fast}\n",
       "job.yaml:9:19: 'lr': expected a number above 0 and at most 1000, found 'fast'"},
      {"", "  optimizer: {lr: .nan}\n",
       "job.yaml:9:19: 'lr': expected a number above 0 and at most 1000, found '.nan'"},
      {"", "  optimizer: {betas: 0.9}\n",
       "job.yaml:9:22: 'betas': expected a list of two numbers, such as [0.9, 0.95]"},
      {"", "retry: {exclude_failed_devices: yes}\n",
       "job.yaml:9:33: 'exclude_failed_devices': expected true or false, found 'yes'"},
      {"", "checkpoint: {every: [1]}\n",
       "job.yaml:9:21: expected a number of steps or a duration such as 10m, found a list"},
  };
  expect_errors(cases);
}

TEST(JobReader, ChecksRangesAndUnits) {
  const BadJob cases[] = {
      {"global_batch: 8", "global_batch: 0",
       "job.yaml:6:17: 'global_batch': expected an integer from 1 to 16777216, found '0'"},
      {"global_batch: 8", "global_batch: -8",
       "job.yaml:6:17: 'global_batch': expected an integer from 1 to 16777216, found '-8'"},
      {"global_batch: 8", "global_batch: 99999999999999999999",
       "job.yaml:6:17: 'global_batch': expected an integer from 1 to 16777216, found "
       "'99999999999999999999'"},
      {"steps: 10", "steps: 99999999999999999999",
       "job.yaml:8:10: 'steps': '99999999999999999999' is too long"},
      {"version: 1", "version: 2", "job.yaml:1:10: 'version': expected 1, found '2'"},
      {"", "  optimizer: {lr: 1e999}\n",
       "job.yaml:9:19: 'lr': expected a number above 0 and at most 1000, found '1e999'"},
      {"", "  optimizer: {betas: [0.9, 1]}\n",
       "job.yaml:9:28: expected a number from 0 and below 1, found '1'"},
      {"", "  seed: -1\n", "job.yaml:9:9: 'seed': expected an integer of at least 0, found '-1'"},
      {"", "checkpoint: {every: 10 minutes}\n",
       "job.yaml:9:21: unknown unit 'minutes' in '10 minutes' (write a duration like 10m or "
       "1.5s)"},
      {"", "checkpoint: {every: 0s}\n", "job.yaml:9:21: expected a duration above 0, found '0s'"},
      {"", "resources: {devices: {memory: 20gb..}}\n",
       "job.yaml:9:31: 'memory': unknown unit 'gb' in '20gb' (did you mean 'GB'?)"},
      {"", "resources: {devices: {memory: 24..}}\n",
       "job.yaml:9:31: 'memory': '24' has no unit (write a size like 20GB or 16GiB)"},
      {"", "resources: {devices: {count: 8..2}}\n",
       "job.yaml:9:30: 'count': '8..2' ends below its beginning"},
      {"", "resources: {devices: {count: 0}}\n", "job.yaml:9:30: 'count': '0' leaves no device"},
      {"", "resources: {devices: {count: ..0}}\n",
       "job.yaml:9:30: 'count': '..0' leaves no device"},
      {"name: test-job", "name: .hidden",
       "job.yaml:2:7: 'name': expected up to 64 letters, digits, '.', '_' and '-' without a "
       "leading '.', found '.hidden'"},
      {"name: test-job", "name: a/b",
       "job.yaml:2:7: 'name': expected up to 64 letters, digits, '.', '_' and '-' without a "
       "leading '.', found 'a/b'"},
  };
  expect_errors(cases);
}

TEST(JobReader, ChecksKeysAgainstEachOther) {
  const BadJob cases[] = {
      {"grain: 2", "grain: 9",
       "job.yaml:7:10: 'grain' must be from 1 to global_batch (8), found 9"},
      {"  grain: 2\n", "  numerics: exact\n",
       "job.yaml:7:13: exact numerics need 'grain' in the job: it decides the bits, so no plan "
       "may choose it (add train.grain, e.g. 4)"},
      {"context: 8}", "context: 8, vocab: 100}",
       "job.yaml:3:71: 'vocab' must be at least 256 for the tokenizer bytes, found 100"},
      {"", "  schedule: {min_lr: 0.1}\n", "job.yaml:9:22: 'min_lr' is above the optimizer's lr"},
      {"", "  tokens: 100\n", "job.yaml:9:11: 'steps' and 'tokens' cannot both be given"},
      {"  steps: 10\n", "", "job.yaml:6:3: 'steps' is missing (or give 'tokens')"},
      {"  global_batch: 8\n", "",
       "job.yaml:6:3: 'global_batch' is missing (an integer from 1 to 16777216)"},
      {"layers: 2, ", "", "job.yaml:3:8: 'layers' is missing (an integer from 1 to 4096)"},
      {"data: {text: [quickstart.yaml]}\n", "",
       "job.yaml:1:1: 'data' is missing (a mapping of keys)"},
      {"[quickstart.yaml]", "[quickstart.yaml, nothing/*.txt]",
       "job.yaml:4:32: 'nothing/*.txt' matches no file"},
  };
  expect_errors(cases);
  EXPECT_EQ(read_text(job_with("[quickstart.yaml]", "gone.txt")).error().code,
            ErrorCode::kNotFound);
  EXPECT_EQ(read_text(job_with("heads: 2", "heads: 3")).error().place.line, 3);
}

TEST(JobReader, ChecksThatThereIsEnoughText) {
  // The file of 725 bytes makes 90 windows of 8, four of them held out.
  EXPECT_EQ(job_error_of(job_with("context: 8", "context: 400")),
            "job.yaml:4:14: data.text holds 725 B, fewer than the two windows of 400 tokens that "
            "training and evaluation need: name more text or lower model.context");
  EXPECT_EQ(job_error_of(job_with("", "  eval: {samples: 5}\n")),
            "job.yaml:9:19: 'samples': 5 are more than the held-out part of the data has (4): "
            "lower it, name more text or raise data.held_out");
  EXPECT_EQ(read_text(job_with("", "  eval: {samples: 4}\n"))->train.eval.samples, 4);
  EXPECT_EQ(read_text(kJob)->train.eval.samples, 4) << "the default is lowered";
}

TEST(JobReader, LimitsAreThoseOfTheModel) {
  EXPECT_EQ(job_error_of(job_with("layers: 2", "layers: 4097")),
            "job.yaml:3:28: 'layers': expected an integer from 1 to 4096, found '4097'");
  EXPECT_EQ(job_error_of(job_with("width: 16", "width: 131074")),
            "job.yaml:3:48: 'width': expected an integer from 1 to 131072, found '131074'");
}

TEST(JobReader, PrecisionMayDependOnTheType) {
  const auto job =
      read_text(job_with("", "  precision: {A100: bf16, V100-16GB: fp16}\n  loss_scale: 1024\n"));
  ASSERT_TRUE(job) << job.error().to_string();
  const std::map<std::string, Precision> expected = {{"A100", Precision::kBf16},
                                                     {"V100-16GB", Precision::kFp16}};
  EXPECT_EQ(job->train.precision_by_type, expected);
  EXPECT_EQ(job->train.loss_scale, 1024);
  EXPECT_EQ(read_text(job_with("", "  precision: fp8\n"))->train.precision, Precision::kFp8);
  EXPECT_EQ(read_text(job_with("", "  precision: fp16\n  loss_scale: dynamic\n"))->train.loss_scale,
            std::nullopt);
}

TEST(JobReader, RefusesPrecisionsThatMakeNoSense) {
  const BadJob cases[] = {
      {"", "  precision: {A100: int3}\n",
       "job.yaml:9:21: expected auto, fp32, fp64, bf16, fp16, tf32 or fp8, found 'int3'"},
      {"", "  precision: {A100: fp64}\n",
       "job.yaml:9:14: fp64 of some devices only ('A100'): all need it, or none"},
      {"", "  precision: fp16\n  loss_scale: 1000\n",
       "job.yaml:10:15: 'loss_scale' must be 'dynamic' or a power of two up to 32768, found 1000"},
      {"", "  loss_scale: 1024\n",
       "job.yaml:9:15: 'loss_scale' is of no use: train.precision has no fp16"},
      {"", "  precision: fp8\n  loss_scale: 1024\n",
       "job.yaml:10:15: 'loss_scale' is of no use: train.precision has no fp16"},
      {"", "  numerics: exact\n  precision: {A100: bf16}\n",
       "job.yaml:10:14: exact numerics need one precision on all devices, not one by type"},
  };
  expect_errors(cases);
}

TEST(JobReader, ReadsWhatTheServiceGoesBy) {
  const auto job =
      read_text(job_with("",
                         "priority: 80\nqueue: night\nafter: [7, 3, 7]\n"
                         "labels: {team: vision, sweep: '7'}\nmax_duration: 6h\nstop_grace: 5m\n"
                         "preemptible: true\n"));
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(job->service.priority, 80);
  EXPECT_EQ(job->service.queue, "night");
  EXPECT_THAT(job->service.after, ElementsAre(3, 7));
  EXPECT_EQ(job->service.labels.at("sweep"), "7");
  EXPECT_EQ(job->service.max_duration, nanos_of_seconds(6 * 3600));
  EXPECT_EQ(job->service.stop_grace, nanos_of_seconds(300));
  EXPECT_TRUE(job->service.preemptible);
}

TEST(JobReader, RefusesServiceKeysThatMeanNothing) {
  const BadJob cases[] = {
      {"", "priority: 101\n",
       "job.yaml:9:11: 'priority': expected an integer from 0 to 100, found '101'"},
      {"", "after: [0]\n", "job.yaml:9:9: 'after': expected an integer of at least 1, found '0'"},
      {"", "labels: [a]\n", "job.yaml:9:9: expected a mapping of texts, found a list"},
      {"", "max_duration: 0s\n",
       "job.yaml:9:15: 'max_duration': expected a duration above 0, found '0s'"},
  };
  expect_errors(cases);
}

Result<JobSpec> read_program_text(const std::string& text) {
  return parse_job(text, "/jobs/job.yaml", "/jobs", {}, JobParts::kAllOrProgram);
}

TEST(JobReader, ReadsPrograms) {
  const auto job = read_program_text(
      "run: python3 'my train.py' --name \"a 'b'\" \"\"\nworkdir: sub\nenv: {A_1: x y}\n"
      "setup: [make, all]\ntrain: {global_batch: 64, grain: 4}\nname: p\npriority: 3\n");
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_THAT(job->program.command, ElementsAre("python3", "my train.py", "--name", "a 'b'", ""));
  EXPECT_EQ(job->program.workdir, "/jobs/sub");
  EXPECT_EQ(job->program.env.at("A_1"), "x y");
  EXPECT_THAT(job->program.setup, ElementsAre("make", "all"));
  EXPECT_EQ(job->train.grain, 4);
  EXPECT_TRUE(job->is_program());
  const auto bare = read_program_text("run: [./x]\nname: p\n");
  ASSERT_TRUE(bare) << bare.error().to_string();
  EXPECT_EQ(bare->train.global_batch, 0);
}

TEST(JobReader, RefusesWhatIsOfNoUseToAProgram) {
  const struct {
    const char *text, *error;
  } kCases[] = {
      {"run: x\nmodel: {}\n", ":2:8: 'model' is of no use to a job with 'run'"},
      {"run: x\ntrain: {global_batch: 4, steps: 3}\n", ":2:26: 'train.steps' is of no use"},
      {"run: x\ntrain: {grain: 3}\n", "'global_batch' is missing"},
      {"run: x\ntrain: {global_batch: 2, grain: 3}\n", ":2:33: 'grain' must be from 1"},
      {"run: x\nparallel: {data: 3}\n", ":2:11: 'parallel' is of no use"},
      {"run: x\ncheckpoint: {every: 5m}\n", ":2:21: 'every' of a program is a number of steps"},
      {"run: []\n", ":1:6: "},
      {"run: ' '\n", ":1:6: "},
      {"run: x 'y\n", ":1:6: 'run': a quote is not closed"},
      {"run: x\nenv: {'A=': b}\n", ":2:7: "},
      {"setup: x\n", ":1:8: 'setup' is for a job with 'run'"},
  };
  for (const auto& [text, error] : kCases) {
    const auto job = read_program_text(text);
    ASSERT_FALSE(job) << text;
    EXPECT_THAT(job.error().to_string(), ::testing::HasSubstr(error)) << text;
  }
  EXPECT_THAT(job_error_of("run: x\n"), ::testing::HasSubstr("for motley run and submit"));
}

TEST(JobReader, RefusesWhatComesLaterByName) {
  const BadJob cases[] = {
      {"[quickstart.yaml]", "[quickstart.yaml], tokens: train.bin",
       "job.yaml:4:33: 'tokens' is not supported yet (give text files)"},
  };
  expect_errors(cases);
}

TEST(JobReader, ReadsPins) {
  const auto job = read_text(job_with("", R"(parallel: {data: 3, pipeline: auto}
pin:
  replicas:
    - stages:
        - {layers: [0, 1], devices: [a/0, a/1], shares: [0.5, 0.5], recompute: block}
        - {layers: [2, 3], devices: b/0, recompute: [mlp, none], precision: bf16}
      micro_batch: 4
      grains: 2
    - {stages: [{layers: [0, 3], devices: [b/1]}]}
  leave_out: [old/0]
)"));
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(job->parallel.data, 3);
  EXPECT_EQ(job->parallel.pipeline, std::nullopt);
  ASSERT_EQ(job->pin.replicas.size(), 2);
  const PinnedReplica& cut = job->pin.replicas[0];
  EXPECT_EQ(cut.stages[0],
            (PinnedStage{0, 1, {"a/0", "a/1"}, {0.5, 0.5}, {Recompute::kBlock}, Precision::kAuto}));
  EXPECT_EQ(
      cut.stages[1],
      (PinnedStage{2, 3, {"b/0"}, {}, {Recompute::kMlp, Recompute::kNone}, Precision::kBf16}));
  EXPECT_EQ(cut.micro_batch, 4);
  EXPECT_EQ(cut.grains, 2);
  EXPECT_EQ(job->pin.replicas[1].grains, std::nullopt);
  EXPECT_THAT(job->pin.leave_out, ElementsAre("old/0"));
  EXPECT_EQ(read_text(job_with("", "pin: {}\n"))->pin, PinSpec{});
  EXPECT_EQ(read_text(job_with("", "pin:\n"))->pin, PinSpec{});
  EXPECT_EQ(read_text(job_with("", "pin: {leave_out: []}\n"))->pin, PinSpec{});
  const auto id = pinned_devices(job->pin)[2];
  EXPECT_EQ((Error{{}, id.second, place_of(*job, id.first)}.to_string()), "job.yaml:14:37: b/0");
}

/// kJob with one pinned replica.
std::string pinned(const std::string& replica) { return "pin: {replicas: [" + replica + "]}\n"; }

TEST(JobReader, RefusesPinsThatMakeNoPlan) {
  const std::string whole = "{layers: [0, 3], devices: [a]}";
  const std::pair<std::string, const char*> cases[] = {
      {"pin: {grain: 4}\n",
       "job.yaml:9:7: unknown key 'grain' (allowed here: replicas, leave_out)"},
      {pinned("{stages: [{layers: 3, devices: [a]}]}"),
       "job.yaml:9:37: 'layers': expected the first and the last layer, such as [0, 6]"},
      {pinned("{stages: [{layers: [0, 3]}]}"),
       "job.yaml:9:28: 'devices' is missing (a list of device ids)"},
      {pinned("{stages: [{layers: [0, 3], devices: [a], recompute: all}]}"),
       "job.yaml:9:70: 'recompute': expected none, attention, mlp or block, found 'all'"},
      {pinned("{stages: [{layers: [1, 3], devices: [a]}]}"),
       "job.yaml:9:37: 'layers' begin at 1 where layer 0 is due"},
      {pinned("{stages: [{layers: [0, 1], devices: [a]}, {layers: [3, 3], devices: [b]}]}"),
       "job.yaml:9:69: 'layers' begin at 3 where layer 2 is due"},
      {pinned("{stages: [{layers: [0, 2], devices: [a]}]}"),
       "job.yaml:9:27: the stages have layers 0 to 2, the model has 0 to 3 (embedding, blocks, "
       "head)"},
      {pinned("{stages: [{layers: [0, 3], devices: [a, b], shares: [1]}]}"),
       "job.yaml:9:70: 'shares' needs one number for each of the 2 devices"},
      {pinned("{stages: [{layers: [0, 3], devices: [a, b], shares: [0.5, 0.4]}]}"),
       "job.yaml:9:70: 'shares' must sum to 1"},
      {pinned("{stages: [{layers: [0, 3], devices: [a, b, c]}]}"),
       "job.yaml:9:54: b gets no attention head"},
      {pinned("{stages: [{layers: [0, 3], devices: [a], recompute: [mlp, mlp]}]}"),
       "job.yaml:9:70: 'recompute' needs one word, or one for each of the 4 layers"},
      {pinned("{stages: [" + whole + "], micro_batch: 3}"),
       "job.yaml:9:74: 'micro_batch' must be whole grains of 2, found 3"},
      {pinned("{stages: [" + whole + "], micro_batch: 10}"),
       "job.yaml:9:74: 'micro_batch': 10 samples are more than a step has (train.global_batch: 8)"},
      {pinned("{stages: [" + whole + "], grains: 5}"),
       "job.yaml:9:17: the replicas compute at least 5 grains; a step has 4"},
      {pinned("{stages: [" + whole + "]}, {stages: [" + whole + "]}"),
       "job.yaml:9:99: a is pinned twice"},
      {"pin: {replicas: [{stages: [" + whole + "]}], leave_out: [b, a]}\n",
       "job.yaml:9:78: a is pinned twice"},
      {"parallel: {data: 5}\n",
       "job.yaml:9:18: 'data': 5 replicas are more than a step has grains (4)"},
      {"parallel: {pipeline: 5}\n",
       "job.yaml:9:22: 'pipeline' must be from 1 to the model's 4 layers, found 5"},
      {"parallel: {pipeline: two}\n",
       "job.yaml:9:22: 'pipeline': expected an integer from 1 to 4098, found 'two'"},
      {"parallel: {pipeline: 2}\n" + pinned("{stages: [" + whole + "]}"),
       "job.yaml:10:27: the replica has 1 stages; parallel.pipeline wants 2"},
      {"parallel: {tensor: 2}\n" + pinned("{stages: [" + whole + "]}"),
       "job.yaml:10:54: the stage has 1 devices; parallel.tensor wants 2"},
      {"resources: {devices: {count: 1}}\n" +
           pinned("{stages: [{layers: [0, 3], devices: [a, b]}]}"),
       "job.yaml:10:17: the replicas have 2 devices; resources.devices.count allows 1"},
      {"  numerics: exact\n" + pinned("{stages: [{layers: [0, 3], devices: [a, b]}]}"),
       "job.yaml:10:54: exact numerics exclude a stage of several devices, where the bits depend "
       "on "
       "the shares (one device, or numerics: fast)"},
      {"parallel: {recompute: off}\n" +
           pinned("{stages: [{layers: [0, 3], devices: [a], recompute: block}]}"),
       "job.yaml:10:70: 'recompute' contradicts parallel.recompute: off"},
  };
  for (const auto& [added, error] : cases)
    EXPECT_EQ(job_error_of(job_with("", added)), error) << added;
  const std::string grains = pinned("{stages: [" + whole + "], grains: 1}");
  EXPECT_EQ(job_error_of(job_with("  grain: 2\n", "") + grains),
            "job.yaml:8:69: 'grains' counts grains: give train.grain, too");
}

TEST(JobReader, PinnedDevicesAreInTheFleetAndAdmitted) {
  const auto fleet = *parse_fleet(
      "version: 1\nnodes:\n  - {host: a, devices: [{type: fast}, {type: slow}]}\n", "fleet.yaml");
  const auto checked = [&](const std::string& added) {
    const auto there = check_pinned_devices(*read_text(job_with("", added)), fleet);
    return there ? "ok" : there.error().to_string();
  };
  EXPECT_EQ(checked(pinned("{stages: [{layers: [0, 3], devices: [a/0]}]}")), "ok");
  EXPECT_EQ(checked(pinned("{stages: [{layers: [0, 3], devices: [a/2]}]}")),
            "job.yaml:9:55: no device 'a/2' in fleet.yaml (did you mean 'a/0'?)");
  EXPECT_EQ(checked("pin: {leave_out: [b/0]}\n"),
            "job.yaml:9:19: no device 'b/0' in fleet.yaml (did you mean 'a/0'?)");
  EXPECT_EQ(checked("resources: {devices: {types: [slow]}}\n" +
                    pinned("{stages: [{layers: [0, 3], devices: [a/0]}]}")),
            "job.yaml:10:55: a/0 is pinned, but excluded by resources.devices.types (slow)");
}

TEST(JobReader, ReadsHowManyDevicesShareAStage) {
  const BadJob cases[] = {
      {"", "parallel: {tensor: many}\n",
       "job.yaml:9:20: 'tensor': expected an integer from 1 to 4096, found 'many'"},
      {"", "parallel: {tensor: 64}\n",
       "job.yaml:9:20: 'tensor' must be from 1 to the model's 2 heads, found 64"},
      {"", "  numerics: exact\nparallel: {tensor: 2}\n",
       "job.yaml:10:20: 'tensor': sums over 2 devices contradict exact numerics, whose bits do not "
       "depend on who computes (tensor: off, or numerics: fast)"},
  };
  expect_errors(cases);
  const auto tensor = [](const std::string& word) {
    return read_text(job_with("", "parallel: {tensor: " + word + "}\n"))->parallel.tensor;
  };
  EXPECT_EQ(tensor("auto"), std::nullopt);
  EXPECT_EQ(tensor("off"), 1);
  EXPECT_EQ(tensor("1"), 1);
  EXPECT_EQ(tensor("2"), 2);
  EXPECT_TRUE(read_text(job_with("", "  numerics: exact\nparallel: {tensor: auto}\n")));
}

TEST(JobReader, ReadsHowOftenGroupsAverage) {
  const BadJob cases[] = {
      {"", "parallel: {sync: {across: 0}}\n",
       "job.yaml:9:27: 'across': expected an integer from 1 to 1000000, found '0'"},
      {"", "parallel: {sync: 4}\n", "job.yaml:9:18: expected a mapping of keys, found '4'"},
      {"", "parallel: {sync: {acros: 4}}\n",
       "job.yaml:9:19: unknown key 'acros' (did you mean 'across'?)"},
      {"", "  numerics: exact\nparallel: {sync: {across: 4}}\n",
       "job.yaml:10:27: 'across': averaging every 4 steps contradicts exact numerics, whose bits "
       "do "
       "not depend on who trains with whom (across: 1, or numerics: fast)"},
      {"", "parallel: {compress: int8, sync: {across: 4}}\n",
       "job.yaml:9:43: 'across': averaging every 4 steps sends no gradients over slow links, so "
       "there is nothing for 'int8' to compress (compress: off, or across: 1)"},
  };
  expect_errors(cases);
  const auto across = [](const std::string& parallel) {
    return read_text(job_with("", "parallel: {" + parallel + "}\n"))->parallel.sync.across;
  };
  EXPECT_EQ(across("sync: {across: 8}"), 8);
  EXPECT_EQ(across("compress: auto, sync: {across: 8}"), 8);
  EXPECT_EQ(across("compress: off"), 1);
}

TEST(JobReader, ReadsCompression) {
  const BadJob cases[] = {
      {"", "parallel: {compress: {type: top_k, fraction: 0.5}}\n",
       "job.yaml:9:46: 'compress': 'fraction': expected a number from 0.01 to 0.1, found '0.5'"},
      {"", "  numerics: exact\nparallel: {compress: int8}\n",
       "job.yaml:10:22: 'compress': 'int8' contradicts exact numerics, which keep every bit of a "
       "gradient (compress: off, or numerics: fast)"},
  };
  expect_errors(cases);
  const auto read = [](const std::string& written) {
    return read_text(job_with("", "parallel: {compress: " + written + "}\n"))->parallel.compress;
  };
  EXPECT_EQ(read("off"), CodecSpec{});
  EXPECT_EQ(read("auto"), CodecSpec{.kind = CodecKind::kAuto});
  EXPECT_EQ(read("{type: top_k, fraction: 0.05}"),
            (CodecSpec{.kind = CodecKind::kTopK, .fraction = 0.05}));
  EXPECT_EQ(read("{type: power_sgd, rank: 3}"),
            (CodecSpec{.kind = CodecKind::kPowerSgd, .rank = 3}));
}

TEST(JobReader, OverridesCountAsWritten) {
  const Result<JobSpec> job =
      read_text(kJob, {{"train.steps", "20"}, {"checkpoint.every", "5"}, {"name", "other"}});
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(job->train.steps, 20);
  EXPECT_EQ(job->checkpoint.every_steps, 5);
  EXPECT_EQ(job->name, "other");
  EXPECT_EQ(job_error_of(kJob, {{"train.steps", "-1"}}),
            "--set train.steps: 'steps': expected an integer from 1 to 1000000000000, found '-1'");
  EXPECT_EQ(job_error_of(kJob, {{"train.stepz", "1"}}),
            "--set train.stepz: unknown key 'stepz' (did you mean 'steps'?)");
  EXPECT_EQ(job_error_of(kJob, {{"train.grain", "16"}}),
            "--set train.grain: 'grain' must be from 1 to global_batch (8), found 16");
}

TEST(JobReader, KnowsWhereEachValueStands) {
  const Result<JobSpec> job =
      read_text(job_with("", "  optimizer: {lr: 0.1}\n"), {{"train.steps", "20"}});
  ASSERT_TRUE(job) << job.error().to_string();
  const auto place = [&](const char* key) {
    return Error{{}, "x", place_of(*job, key)}.to_string();
  };
  EXPECT_EQ(place("model.width"), "job.yaml:3:48: x");
  EXPECT_EQ(place("train.optimizer.lr"), "job.yaml:9:19: x");
  EXPECT_EQ(place("train.optimizer.betas"), "job.yaml:9:14: x") << "what is nearest above it";
  EXPECT_EQ(place("train.steps"), "--set train.steps: x");
  EXPECT_EQ(place("resources.devices.count"), "job.yaml: x");
}

TEST(JobReader, RefusesPathsThatJsonCannotName) {
  const testing::TemporaryDirectory directory;
  const std::string odd = directory.path() + "/caf\xe9.txt";
  std::ofstream(directory.path() + "/a.txt") << "x";
  std::ofstream(odd) << "x";
  const auto of_data =
      parse_job(job_with("quickstart.yaml", "a.txt, '*.txt'"), "job.yaml", directory.path());
  ASSERT_FALSE(of_data);
  EXPECT_EQ(
      of_data.error().to_string(),
      "job.yaml:4:22: a file's path is not UTF-8, so no JSON can name it (rename it): " + odd);
  EXPECT_EQ(exit_code(of_data.error().code), 65);
  for (const auto& read : {read_job(odd).map([](const JobSpec&) { return Unit{}; }),
                           read_fleet(odd).map([](const FleetSpec&) { return Unit{}; })}) {
    ASSERT_FALSE(read);
    EXPECT_EQ(
        read.error().to_string(),
        odd + ": its path is not UTF-8, so no JSON can name it (rename the file or its directory)");
    EXPECT_EQ(exit_code(read.error().code), 65);
  }
}

TEST(JobReader, NamesTheMissingFile) {
  const Result<JobSpec> job = read_job("nowhere/job.yaml");
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().to_string(), "nowhere/job.yaml: No such file or directory");
  EXPECT_EQ(exit_code(job.error().code), 66);
}

}  // namespace
}  // namespace motley
