#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/json_file.h"
#include "core/philox.h"
#include "core/run_layout.h"
#include "core/spec/json.h"
#include "core/spec/precisions.h"
#include "worker/checkpoint/store.h"
#include "worker/commands/commands.h"
#include "worker/engine/engine.h"
#include "worker/train/engine_state.h"
#include "worker/train/world.h"

namespace motley {
namespace {

struct SampleOptions {
  std::string run_dir;
  int bytes = 200;
  std::string prompt = "\n";
  double temperature = 0.8;
  uint64_t seed = 1;
};

/// An engine holding the newest loadable checkpoint's weights.
Result<std::unique_ptr<Engine>> load_newest(const JobSpec& job, const std::string& checkpoints,
                                            Device& device) {
  EngineOptions options;
  options.model = job.model;
  options.optimizer = job.train.optimizer;
  options.micro_batches = {1};
  options.shard_optimizer = true;  // of which this process has none
  options.owned.emplace();
  MOTLEY_TRY(auto engine, Engine::create(device, options));
  MOTLEY_TRY(const auto views, state_views(*engine, Engine::State::kWeight));
  std::vector<SuspectCheckpoint> unusable;
  MOTLEY_TRY(const auto all, find_checkpoints(real_file_system(), checkpoints, &unusable));
  for (const FoundCheckpoint& found : all) {
    MOTLEY_TRY_VOID(check_model(found, job.model));
    const auto loaded = load(real_file_system(), checkpoints, found, views, nullptr);
    if (!loaded && !is_suspect(loaded.error())) return fail(loaded.error());
    if (!loaded) unusable.push_back({found.directory, loaded.error()});
    if (!loaded) continue;
    MOTLEY_TRY_VOID(engine->state_written(Engine::State::kWeight));
    return engine;
  }
  if (unusable.empty())
    return fail(ErrorCode::kNotFound, "no checkpoint in " + checkpoints + ": train first");
  return fail(ErrorCode::kCorrupt,
              "no checkpoint in " + checkpoints +
                  " can be loaded; of the newest: " + unusable[0].error.message);
}

/// Draws from softmax(logits / temperature); temperature 0 takes the most likely.
int32_t draw(std::span<const float> logits, double temperature, double uniform) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (temperature <= 0) return static_cast<int32_t>(best - logits.begin());
  std::vector<double> cumulative;
  double sum = 0;
  for (const float logit : logits) {
    sum += std::exp((static_cast<double>(logit) - *best) / temperature);
    cumulative.push_back(sum);
  }
  const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end(), uniform * sum);
  return static_cast<int32_t>(std::min<std::ptrdiff_t>(
      chosen - cumulative.begin(), static_cast<std::ptrdiff_t>(logits.size()) - 1));
}

/// Prints a byte as text; what a terminal might act on becomes a dot.
void print_byte(int32_t token) {
  const bool printable = token == '\n' || token == '\t' || (token >= 32 && token < 127);
  std::putchar(printable ? token : '.');
  std::fflush(stdout);
}

Result<Unit> generate(const SampleOptions& options, const ModelSpec& model, Engine& engine) {
  std::vector<int32_t> text(options.prompt.size());
  std::transform(options.prompt.begin(), options.prompt.end(), text.begin(),
                 [](char c) { return static_cast<unsigned char>(c); });
  const auto context = static_cast<size_t>(model.context);
  const auto vocab = static_cast<size_t>(model.vocab);
  for (int i = 0; i < options.bytes; ++i) {
    const size_t used = std::min(text.size(), context);
    // Attention is causal: what stands behind the last token does not matter.
    std::vector<int32_t> window(context, 0);
    std::copy(text.end() - static_cast<std::ptrdiff_t>(used), text.end(), window.begin());
    MOTLEY_TRY(const std::vector<float> logits, engine.logits(window, 1));
    // Tokens beyond the 256 bytes cannot occur in text.
    const auto row = std::span(logits).subspan((used - 1) * vocab, std::min<size_t>(vocab, 256));
    const double uniform =
        random_uniform(options.seed, RandomUse::kSampling, 0, static_cast<uint64_t>(i));
    text.push_back(draw(row, options.temperature, uniform));
    print_byte(text.back());
  }
  std::putchar('\n');
  return Unit{};
}

Result<Unit> run_sample(const SampleOptions& options) {
  MOTLEY_TRY(const auto document, read_json_file(real_file_system(), options.run_dir + "/job.json",
                                                 ErrorCode::kInvalidSpec));
  MOTLEY_TRY(const JobSpec job, job_from_json(document));
  DeviceSpec cpu;
  cpu.kind = DeviceKind::kCpu;
  MOTLEY_TRY(const auto device, open_device_for(job, cpu, precision_computed(job, cpu)));
  const std::string checkpoints = checkpoints_directory(options.run_dir, job.checkpoint);
  MOTLEY_TRY(const auto engine, load_newest(job, checkpoints, *device));
  return generate(options, job.model, *engine);
}

}  // namespace

void add_sample_command(CLI::App& app, Result<Unit>* outcome) {
  auto* command = app.add_subcommand("sample", "Text from a run's newest checkpoint");
  auto options = std::make_shared<SampleOptions>();
  command->add_option("--run-dir", options->run_dir, "The run's directory")->required();
  command->add_option("--bytes", options->bytes, "How many bytes")->check(CLI::Range(1, 1000000));
  command->add_option("--prompt", options->prompt, "What to continue (default: a line end)")
      ->check([](const std::string& text) {
        return text.empty() ? std::string("must not be empty") : std::string();
      });
  command->add_option("--temperature", options->temperature, "0: always the most likely byte")
      ->check(CLI::Range(0.0, 10.0));
  command->add_option("--seed", options->seed, "Another seed, another text");
  command->callback([=] { *outcome = run_sample(*options); });
}

}  // namespace motley
