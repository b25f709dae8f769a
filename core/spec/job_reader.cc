#include <algorithm>
#include <filesystem>
#include <map>

#include "core/spec/array_reader.h"
#include "core/spec/codec_reader.h"
#include "core/spec/data_windows.h"
#include "core/spec/glob.h"
#include "core/spec/model_job.h"
#include "core/spec/model_reader.h"
#include "core/spec/pin_reader.h"
#include "core/spec/program_reader.h"
#include "core/spec/reader.h"
#include "core/spec/resources_reader.h"
#include "core/spec/service_reader.h"
#include "core/spec/yaml_keys.h"
#include "core/utf8.h"

namespace motley {
namespace {

// What a key needs beyond its own type is checked by check_job() below; what the whole program
// relies on, also of a job.json, by first_fault().

constexpr int64_t kMostSteps = TrainSpec::kMostSteps;
constexpr int64_t kMostSamples = TrainSpec::kMostSamples;

/// A job as it stands in the file: what the file says in other words than JobSpec.
struct TrainDraft : TrainSpec {
  std::optional<int64_t> tokens;
};
struct JobDraft : JobSpec {
  TrainDraft train_draft;
  ResourcesDraft resources;
};

const YamlKeys<DataSpec>& data_keys() {
  static const YamlKeys<DataSpec> keys = {
      converted("text", "a list of file patterns", &DataSpec::text, to_texts).required(),
      word("tokenizer", &DataSpec::tokenizer, {"bytes"}),
      number("held_out", &DataSpec::held_out, {.low = 0, .high = 0.5}),
      later<DataSpec>("tokens", "give text files"),
  };
  return keys;
}

/// betas: [beta1, beta2]
Result<Unit> read_betas(const YamlNode& node, OptimizerSpec& optimizer) {
  constexpr NumberRange kBeta{.low = 0, .high = 1, .below_high = true};
  if (node.kind != YamlNode::Kind::kList || node.items.size() != 2)
    return fail_at(node, "'betas': expected a list of two numbers, such as [0.9, 0.95]");
  MOTLEY_TRY(optimizer.beta1, to_number(node.items[0], kBeta));
  MOTLEY_TRY(optimizer.beta2, to_number(node.items[1], kBeta));
  return Unit{};
}

const YamlKeys<OptimizerSpec>& optimizer_keys() {
  static const YamlKeys<OptimizerSpec> keys = {
      word("type", &OptimizerSpec::type, {"adamw"}),
      number("lr", &OptimizerSpec::lr, {.low = 0, .high = 1000, .above_low = true}),
      {"betas", "a list of two numbers", read_betas},
      number("eps", &OptimizerSpec::eps, {.low = 0, .high = 1, .above_low = true}),
      number("weight_decay", &OptimizerSpec::weight_decay, {.low = 0, .high = 1000}),
      number("clip", &OptimizerSpec::clip, {.low = 0, .high = 1e9}),
  };
  return keys;
}

const YamlKeys<ScheduleSpec>& schedule_keys() {
  static const YamlKeys<ScheduleSpec> keys = {
      word("type", &ScheduleSpec::type, {"cosine", "constant"}),
      integer("warmup", &ScheduleSpec::warmup, {0, kMostSteps}),
      number("min_lr", &ScheduleSpec::min_lr, {.low = 0, .high = 1000}),
  };
  return keys;
}

const YamlKeys<EvalSpec>& eval_keys() {
  static const YamlKeys<EvalSpec> keys = {
      integer("every", &EvalSpec::every, {0, kMostSteps}),
      integer("samples", &EvalSpec::samples, {1, kMostSamples}),
  };
  return keys;
}

Result<Precision> to_precision(const YamlNode& node) {
  std::vector<std::string_view> words;
  for (const Named<Precision>& named : kPrecisionNames) words.push_back(named.name);
  MOTLEY_TRY(const size_t i, to_word(node, words));
  return kPrecisionNames[i].value;
}

/// A word, or one for each type of device.
YamlKey<TrainDraft> precision_key() {
  const auto read = [](const YamlNode& node, TrainDraft& train) -> Result<Unit> {
    if (node.kind != YamlNode::Kind::kMapping) {
      MOTLEY_TRY(train.precision, to_precision(node));
      return Unit{};
    }
    for (size_t i = 0; i < node.member_count(); ++i) {
      MOTLEY_TRY(const Precision precision, to_precision(node.value(i)));
      train.precision_by_type[node.key(i).text] = precision;
    }
    return Unit{};
  };
  return {"precision",
          "auto, fp32, tf32, bf16, fp16, fp8, fp64, or a mapping of device types to these", read};
}

Result<std::optional<int64_t>> to_loss_scale(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kScalar && node.text == "dynamic") return std::nullopt;
  MOTLEY_TRY(const int64_t scale, to_integer(node, {1, TrainSpec::kMostLossScale}));
  return scale;
}

const YamlKeys<TrainDraft>& train_keys() {
  using Draft = TrainDraft;
  static const YamlKeys<Draft> keys = {
      integer("global_batch", &Draft::global_batch, {1, kMostSamples}).required(),
      integer("grain", &Draft::grain, {1, kMostSamples}),
      count("steps", &Draft::steps, {1, kMostSteps}),
      count("tokens", &Draft::tokens, {1, INT64_MAX}),
      section("optimizer", &Draft::optimizer, optimizer_keys),
      section("schedule", &Draft::schedule, schedule_keys),
      precision_key(),
      converted("loss_scale", "dynamic, or a power of two", &Draft::loss_scale, to_loss_scale),
      word("numerics", &Draft::numerics),
      integer("seed", &Draft::seed, {0, INT64_MAX}),
      section("eval", &Draft::eval, eval_keys),
  };
  return keys;
}

/// every: 1000 (steps) or 10m
Result<Unit> read_every(const YamlNode& node, CheckpointSpec& checkpoint) {
  const std::string expects = "a number of steps or a duration such as 10m";
  if (node.kind != YamlNode::Kind::kScalar) return fail_expected(node, expects);
  const bool steps = node.text.find_first_not_of("+-0123456789") == std::string::npos;
  if (steps) {
    MOTLEY_TRY(checkpoint.every_steps, to_integer(node, {0, kMostSteps}));
    return Unit{};
  }
  MOTLEY_TRY(checkpoint.every_time, to_measure(node, expects, parse_duration));
  if (checkpoint.every_time <= Nanos(0)) return fail_expected(node, "a duration above 0");
  return Unit{};
}

const YamlKeys<CheckpointSpec>& checkpoint_keys() {
  static const YamlKeys<CheckpointSpec> keys = {
      {"every", "a number of steps or a duration", read_every},
      integer("keep", &CheckpointSpec::keep, {1, 100'000}),
      text("dir", &CheckpointSpec::dir, "a path", is_path).nullable(),
  };
  return keys;
}

const YamlKeys<SyncSpec>& sync_keys() {
  static const YamlKeys<SyncSpec> keys = {
      integer("across", &SyncSpec::across, {1, SyncSpec::kMostAcross}),
  };
  return keys;
}

Result<std::optional<int>> to_number_or_auto(const YamlNode& node, const IntegerRange& range) {
  if (node.kind == YamlNode::Kind::kScalar && node.text == "auto") return std::nullopt;
  MOTLEY_TRY(const int64_t value, to_integer(node, range));
  return static_cast<int>(value);
}

Result<std::optional<int>> to_tensor(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kScalar && node.text == "off") return 1;
  return to_number_or_auto(node, {1, ModelSpec::kMostHeads});
}

const YamlKeys<ParallelSpec>& parallel_keys() {
  using Draft = ParallelSpec;
  static const YamlKeys<Draft> keys = {
      converted("data", "auto, or how many replicas", &Draft::data,
                [](const YamlNode& node) {
                  return to_number_or_auto(node, {1, ParallelSpec::kMostReplicas});
                }),
      converted("pipeline", "auto, or how many stages", &Draft::pipeline,
                [](const YamlNode& node) {
                  return to_number_or_auto(node, {1, ModelSpec::kMostLayers + 2});
                }),
      converted("tensor", "auto, off, or how many devices share each stage", &Draft::tensor,
                to_tensor),
      flag("recompute", &Draft::recompute, "auto", "off"),
      word("shard_optimizer", &Draft::shard_optimizer),
      flag("host_optimizer", &Draft::host_optimizer, "auto", "off"),
      converted("compress", "off, auto, the name of a codec, or a mapping with its type",
                &Draft::compress, to_codec),
      section("sync", &Draft::sync, sync_keys),
  };
  return keys;
}

const YamlKeys<RetrySpec>& retry_keys() {
  static const YamlKeys<RetrySpec> keys = {
      integer("max_restarts", &RetrySpec::max_restarts, {0, RetrySpec::kMostRestarts}),
      flag("exclude_failed_devices", &RetrySpec::exclude_failed_devices),
  };
  return keys;
}

bool is_job_name(std::string_view text) {
  return !text.empty() && text.size() <= JobSpec::kLongestName && text.front() != '.' &&
         is_plain_name(text);
}
constexpr const char* kJobName = "up to 64 letters, digits, '.', '_' and '-' without a leading '.'";

Result<Unit> read_model_section(const YamlNode& node, JobDraft& draft) {
  return read_model(node, draft.model);
}

/// Its tasks are read one by one (parse_jobs()), and what has them no longer.
Result<Unit> read_array(const YamlNode& node, JobDraft&) {
  return fail_at(node,
                 "'array' makes several jobs of this file: submit it to the job service (motley "
                 "submit), or leave 'array' out");
}

const YamlKeys<JobDraft>& job_keys() {
  using Draft = JobDraft;
  static const YamlKeys<Draft> keys = [] {
    YamlKeys<Draft> list = {
        integer("version", &Draft::version, {1, 1}),
        text("name", &Draft::name, kJobName, is_job_name),
        text("fleet", &Draft::fleet_path, "a path", is_path).nullable(),
        YamlKey<Draft>("model", "a mapping of keys", read_model_section).required(),
        section("data", &Draft::data, data_keys).required(),
        section("train", &Draft::train_draft, train_keys).required(),
        section("checkpoint", &Draft::checkpoint, checkpoint_keys),
        section("resources", &Draft::resources, resources_keys),
        converted("any_of", "a list of alternatives", &Draft::any_of, to_alternatives),
        {"array", "indices, or a mapping with over, index or at_once", read_array},
        section("parallel", &Draft::parallel, parallel_keys),
        section("pin", &Draft::pin, pin_keys).nullable(),
        section("retry", &Draft::retry, retry_keys),
    };
    for (const YamlKey<ServiceSpec>& key : service_keys())
      list.push_back({key.name, key.expects, [&key](const YamlNode& node, Draft& draft) {
                        return key.read(node, draft.service);
                      }});
    for (const YamlKey<ProgramSpec>& key : program_keys())
      list.push_back({key.name, key.expects, [&key](const YamlNode& node, Draft& draft) {
                        return key.read(node, draft.program);
                      }});
    return list;
  }();
  return keys;
}

std::string resolved(const std::string& base, const std::string& path) {
  if (path.empty()) return path;
  return (std::filesystem::path(base) / path).lexically_normal().string();
}

/// A run names its files in JSON, which holds text only.
Result<Unit> check_names(const std::vector<std::string>& files, const SourcePlace& place) {
  const auto odd = std::find_if_not(files.begin(), files.end(),
                                    [](const std::string& file) { return is_utf8(file); });
  if (odd == files.end()) return Unit{};
  return fail(ErrorCode::kInvalidSpec,
              "a file's path is not UTF-8, so no JSON can name it (rename it): " + *odd, place);
}

/// What the patterns match, in the order of the paths; an error stands at the pattern.
Result<Unit> expand_data(const YamlTree& tree, const std::string& base, DataSpec& data) {
  const YamlNode& node = tree.nearest("data.text");
  std::map<std::string, SourcePlace> found;
  for (size_t i = 0; i < data.text.size(); ++i) {
    const SourcePlace place = i < node.items.size() ? node.items[i].place() : node.place();
    Result<std::vector<std::string>> files = expand_glob(base, data.text[i]);
    if (!files) return fail(files.error().code, files.error().message, place);
    if (files->empty())
      return fail(ErrorCode::kNotFound, "'" + one_line(data.text[i]) + "' matches no file", place);
    MOTLEY_TRY_VOID(check_names(*files, place));
    for (const std::string& file : *files) found.try_emplace(file, place);
  }
  for (auto& [file, place] : found) {
    data.files.push_back(file);
    data.file_places.push_back(std::move(place));
  }
  return Unit{};
}

/// Known before anything is measured or written: is there enough to train on and to evaluate with?
Result<Unit> check_data(const YamlTree& tree, JobDraft& draft) {
  Bytes bytes{0};
  for (const std::string& path : draft.data.files) {
    std::error_code error;
    bytes += Bytes(static_cast<int64_t>(std::filesystem::file_size(path, error)));
    if (error)
      return fail(ErrorCode::kNotFound, "data file " + path + ": " + error.message(),
                  tree.nearest("data.text").place());
  }
  const auto windows = cut_windows(draft.data, bytes, draft.model.context);
  if (!windows) return fail_at(tree.nearest("data.text"), windows.error().message);
  EvalSpec& eval = draft.train.eval;
  if (eval.samples <= windows->eval) return Unit{};
  const YamlNode& place = tree.nearest("train.eval.samples");
  if (place.text.empty()) {  // the default, which small data lowers
    eval.samples = static_cast<int>(windows->eval);
    return Unit{};
  }
  return fail_at(place, "'samples': " + std::to_string(eval.samples) +
                            " are more than the held-out part of the data has (" +
                            std::to_string(windows->eval) +
                            "): lower it, name more text or raise data.held_out");
}

/// steps, or tokens divided by those of a step and rounded up.
Result<Unit> settle_steps(const YamlTree& tree, JobDraft& draft) {
  const bool has_steps = tree.root.find("train")->find("steps") != nullptr;
  const std::optional<int64_t>& tokens = draft.train_draft.tokens;
  if (has_steps && tokens)
    return fail_at(tree.nearest("train.tokens"), "'steps' and 'tokens' cannot both be given");
  if (!has_steps && !tokens)
    return fail_at(tree.nearest("train"), "'steps' is missing (or give 'tokens')");
  if (tokens) {
    const int64_t per_step = int64_t{draft.train.global_batch} * draft.model.context;
    draft.train.steps = *tokens / per_step + (*tokens % per_step != 0 ? 1 : 0);
  }
  return Unit{};
}

/// Of every value below `node`, whose own key is `path`; elements of a list have numbers.
void note_places(const YamlNode& node, const std::string& path, JobSpec& job) {
  if (!path.empty()) job.places[path] = node.place();
  if (node.kind == YamlNode::Kind::kList)
    for (size_t i = 0; i < node.items.size(); ++i)
      note_places(node.items[i], path + "." + std::to_string(i), job);
  for (size_t i = 0; i < node.member_count(); ++i)
    note_places(node.value(i), (path.empty() ? "" : path + ".") + node.key(i).text, job);
}

/// All of a job that no model and no data are needed for.
Result<Unit> settle(const YamlTree& tree, const std::string& source, const std::string& base,
                    JobDraft& draft) {
  draft.source = source;
  note_places(tree.root, "", draft);
  draft.train = draft.train_draft;
  draft.devices = draft.resources.devices;
  if (!draft.any_of.empty() && tree.root.find("resources") != nullptr &&
      tree.root.find("resources")->find("devices") != nullptr)
    return fail_at(*tree.root.find("any_of"),
                   "'any_of' and 'resources.devices' exclude each other (put all that is wanted of "
                   "devices into the alternatives)");
  draft.fleet_path = resolved(base, draft.fleet_path);
  draft.checkpoint.dir = resolved(base, draft.checkpoint.dir);
  if (draft.is_program())
    draft.program.workdir =
        resolved(base, draft.program.workdir.empty() ? "." : draft.program.workdir);
  if (draft.name.empty()) draft.name = std::filesystem::path(source).stem().string();
  if (!is_job_name(draft.name))
    return fail_at(tree.root, "'name' is missing (" + std::string(kJobName) + ")");
  return Unit{};
}

/// What else there is, its data apart.
Result<Unit> settle_model(const YamlTree& tree, JobDraft& draft) {
  if (draft.model.vocab == 0) draft.model.vocab = kByteVocabulary;
  MOTLEY_TRY_VOID(settle_steps(tree, draft));
  if (const std::optional<SpecFault> fault = first_fault(draft))
    return fail_at(tree.nearest(fault->key), fault->what);
  return Unit{};
}

bool needs_data(JobParts parts) {
  return parts == JobParts::kAll || parts == JobParts::kAllOrProgram;
}

}  // namespace

Result<JobSpec> job_of(YamlTree tree, const std::string& source, const std::string& base_directory,
                       const std::vector<Override>& overrides, JobParts parts) {
  for (const Override& override : overrides)
    MOTLEY_TRY_VOID(override_value(tree, override.path, override.value, override.where));
  MOTLEY_TRY(const bool program, is_program(tree.root));
  if (program && parts != JobParts::kAllOrProgram)
    return fail_at(*tree.root.find("run"),
                   "'run': a job that is a program has no model: it is for motley run and submit");
  YamlKeys<JobDraft> keys = job_keys();
  for (YamlKey<JobDraft>& key : keys)
    if ((program && (key.name == "model" || key.name == "data" || key.name == "train")) ||
        (key.name == "model" && parts == JobParts::kWithoutModel) ||
        (key.name == "data" && !needs_data(parts)))
      key.is_required = false;
  JobDraft draft;
  MOTLEY_TRY_VOID(read_mapping(tree.root, keys, draft));
  MOTLEY_TRY_VOID(settle(tree, source, base_directory, draft));
  if (program) {
    if (const std::optional<SpecFault> fault = first_fault(draft))
      return fail_at(tree.nearest(fault->key), fault->what);
    return JobSpec(std::move(draft));
  }
  if (parts != JobParts::kWithoutModel) MOTLEY_TRY_VOID(settle_model(tree, draft));
  if (needs_data(parts)) {
    MOTLEY_TRY_VOID(expand_data(tree, base_directory, draft.data));
    MOTLEY_TRY_VOID(check_data(tree, draft));
  }
  return JobSpec(std::move(draft));
}

Result<JobSpec> parse_job(std::string_view text, const std::string& source,
                          const std::string& base_directory, const std::vector<Override>& overrides,
                          JobParts parts) {
  MOTLEY_TRY(YamlTree tree, parse_yaml(text, source, kJobLimits));
  return job_of(std::move(tree), source, base_directory, overrides, parts);
}

Result<std::vector<JobSpec>> parse_jobs(std::string_view text, const std::string& source,
                                        const std::string& base_directory,
                                        const std::vector<Override>& overrides, JobParts parts) {
  MOTLEY_TRY(YamlTree tree, parse_yaml(text, source, kJobLimits));
  MOTLEY_TRY(const std::optional<ArrayDraft> array, take_array(tree.root));
  std::vector<JobSpec> jobs;
  if (!array) {
    MOTLEY_TRY(JobSpec job, job_of(std::move(tree), source, base_directory, overrides, parts));
    jobs.push_back(std::move(job));
    return jobs;
  }
  for (size_t i = 0; i < array->tasks.size(); ++i) {
    // Tasks that differ in their index alone are one job.
    if (i == 0 || !array->tasks[i].values.empty()) {
      YamlTree of_task;
      of_task.root = tree.root;
      for (const auto& [path, value] : array->tasks[i].values)
        MOTLEY_TRY_VOID(put_value(of_task.root, path, value));
      MOTLEY_TRY(JobSpec job, job_of(std::move(of_task), source, base_directory, overrides, parts));
      jobs.push_back(std::move(job));
    } else {
      jobs.push_back(jobs.front());
    }
    MOTLEY_TRY_VOID(become_task(*array, i, &jobs.back()));
  }
  return jobs;
}

Result<JobSpec> read_job(const std::string& path, const std::vector<Override>& overrides,
                         JobParts parts) {
  MOTLEY_TRY(const std::string text, read_yaml_file(path, kJobLimits.bytes));
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return parse_job(text, path, absolute.parent_path().string(), overrides, parts);
}

}  // namespace motley
