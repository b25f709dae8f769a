#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/json_file.h"
#include "core/spec/json.h"
#include "core/units.h"
#include "worker/commands/commands.h"
#include "worker/engine/engine.h"

namespace motley {
namespace {

struct EstimateOptions {
  std::string job;
  int threads = 1;
  int largest = 0;
  bool as_json = false;
};

Result<Unit> run_estimate(const EstimateOptions& options) {
  MOTLEY_TRY(const auto document,
             read_json_file(real_file_system(), options.job, ErrorCode::kInvalidSpec));
  MOTLEY_TRY(const JobSpec job, job_from_json(document));
  EngineOptions engine;
  engine.model = job.model;
  engine.numerics = job.train.numerics;
  engine.optimizer = job.train.optimizer;
  const int largest = options.largest > 0 ? options.largest : job.train.global_batch;
  const auto kind =
      job.train.precision == Precision::kFp64 ? DeviceKind::kReference : DeviceKind::kCpu;
  const auto points = estimate_memory(engine, kind, options.threads, largest);
  nlohmann::json rows = nlohmann::json::array();
  if (!options.as_json)
    std::printf("%11s %12s %12s %12s\n", "micro-batch", "fixed", "activations", "total");
  for (const MemoryPoint& point : points) {
    rows.push_back({{"micro_batch", point.micro_batch},
                    {"fixed_bytes", point.fixed.value()},
                    {"activation_bytes", point.activations.value()}});
    if (!options.as_json)
      std::printf("%11d %12s %12s %12s\n", point.micro_batch, format_bytes(point.fixed).c_str(),
                  format_bytes(point.activations).c_str(), format_bytes(point.total()).c_str());
  }
  if (options.as_json) std::printf("%s\n", rows.dump().c_str());
  return Unit{};
}

}  // namespace

void add_estimate_command(CLI::App& app, Result<Unit>* outcome) {
  auto* command =
      app.add_subcommand("estimate", "Bytes a rank needs by micro-batch; needs no hardware");
  auto options = std::make_shared<EstimateOptions>();
  command->add_option("--job", options->job, "job.json of a run or written by `motley plan`")
      ->required();
  command->add_option("--threads", options->threads, "Threads of the device")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--largest", options->largest, "Largest micro-batch (default: the global batch)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", options->as_json, "A list of objects");
  command->callback([=] { *outcome = run_estimate(*options); });
}

}  // namespace motley
