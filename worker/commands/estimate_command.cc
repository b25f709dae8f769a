#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/json_file.h"
#include "core/json_place.h"
#include "core/plan_completion.h"
#include "core/spec/json.h"
#include "core/spec/names.h"
#include "core/units.h"
#include "worker/commands/commands.h"
#include "worker/engine/engine.h"
#include "worker/profiler/count_device.h"
#include "worker/profiler/layer_kinds.h"
#include "worker/train/rank_memory.h"

namespace motley {
namespace {

constexpr Bytes kLargestDocument{256 << 20};

struct EstimateOptions {
  std::string job, plan, work;
  std::string device = "cpu", precision = "auto";
  int threads = 1;
  std::vector<std::string> layers = {"embedding", "block", "head"};
  std::vector<int> micro_batches = {1};
  std::vector<double> shares = {1};
  std::vector<std::string> recompute = {"none"};
  bool as_json = false;
};

nlohmann::json bytes_to_json(const MemoryEstimate& bytes) {
  return {{"static_bytes", bytes.fixed.value()},
          {"parameter_bytes", bytes.parameters.value()},
          {"gradient_bytes", bytes.gradients.value()},
          {"optimizer_bytes", bytes.optimizer.value()},
          {"saved_bytes", bytes.saved.value()},
          {"transient_bytes", bytes.transient.value()},
          {"exchange_bytes", bytes.exchange.value()},
          {"snapshot_bytes", bytes.snapshot.value()},
          {"host_bytes", bytes.host.value()},
          {"total_bytes", bytes.total().value()},
          {"host_total_bytes", bytes.host_total().value()}};
}

std::string bytes_columns(const MemoryEstimate& bytes) {
  std::string text;
  for (const Bytes part : {bytes.fixed, bytes.saved, bytes.transient, bytes.exchange,
                           bytes.snapshot, bytes.host, bytes.total(), bytes.host_total()}) {
    char column[24];
    std::snprintf(column, sizeof column, " %11s", format_bytes(part).c_str());
    text += column;
  }
  return text;
}

/// The last two: what the device's limit is for, and what the host needs besides.
constexpr const char* kBytesTitles =
    "      static       saved   transient    exchange    snapshot        host       total"
    "  host total";

// --- kinds of layers

/// What one layer needs in a stage; saved bytes are those of one micro-batch in flight. Whoever has
/// the head goes back at once, so that its logits become their own gradient: all is transient.
MemoryEstimate estimate_layer(const JobSpec& job, const LayerKind& kind, int samples,
                              const DeviceTraits& traits) {
  EngineOptions engine = layer_engine_options(job, kind, {samples});
  engine.in_flight = kind.layer == "head" ? 1 : 2;  // two tell apart what is saved
  MemoryEstimate bytes = estimate_engine(engine, traits);
  bytes.saved = Bytes(bytes.saved.value() / engine.in_flight);
  return bytes;
}

Result<std::vector<LayerKind>> kinds_of(const EstimateOptions& options, const ModelSpec& model) {
  std::vector<LayerKind> kinds;
  for (const std::string& layer : options.layers) {
    for (const double share : options.shares) {
      for (const std::string& word : options.recompute) {
        const auto recompute = from_spec_name<Recompute>(word);
        if (!recompute) return fail(ErrorCode::kUsage, "unknown word '" + word + "' of recompute");
        if (layer != "block" && *recompute != Recompute::kNone) continue;
        const LayerKind kind{layer, share, *recompute};
        MOTLEY_TRY_VOID(check_layer_kind(kind, model));
        kinds.push_back(kind);
      }
    }
  }
  return kinds;
}

/// Of the device that layers are counted for.
Result<DeviceTraits> traits_wanted(const EstimateOptions& options, const JobSpec& job) {
  DeviceSpec device;
  const auto precision = from_spec_name<Precision>(options.precision);
  if (!precision)
    return fail(ErrorCode::kUsage, "unknown word '" + options.precision + "' of precision");
  device.kind = options.device == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu;
  device.threads = options.threads;
  return traits_driven(job, device, *precision);
}

Result<Unit> estimate_layers(const EstimateOptions& options, const JobSpec& job) {
  MOTLEY_TRY(const DeviceTraits traits, traits_wanted(options, job));
  MOTLEY_TRY(const std::vector<LayerKind> kinds, kinds_of(options, job.model));
  nlohmann::json rows = nlohmann::json::array();
  if (!options.as_json)
    std::printf("%-10s %6s %-10s %11s %s\n", "layer", "share", "recompute", "micro-batch",
                kBytesTitles);
  for (const LayerKind& kind : kinds) {
    for (const int samples : options.micro_batches) {
      const MemoryEstimate bytes = estimate_layer(job, kind, samples, traits);
      nlohmann::json row = bytes_to_json(bytes);
      row["layer"] = kind.layer;
      row["share"] = kind.share;
      row["recompute"] = spec_name(kind.recompute);
      row["micro_batch"] = samples;
      rows.push_back(std::move(row));
      if (!options.as_json)
        std::printf("%-10s %6.3g %-10s %11d %s\n", kind.layer.c_str(), kind.share,
                    spec_name(kind.recompute).c_str(), samples, bytes_columns(bytes).c_str());
    }
  }
  if (options.as_json) std::printf("%s\n", rows.dump().c_str());
  return Unit{};
}

// --- ranks of a plan

/// The fleet packed with a plan; without one, the plan's devices as CPUs of that many threads.
Result<FleetSpec> fleet_with(const nlohmann::json& document, const Plan& plan, int threads) {
  if (document.contains("fleet")) return fleet_from_json(document["fleet"]);
  FleetSpec fleet;
  for (const RankPlacement& rank : plan.ranks) {
    DeviceSpec device;
    device.id = rank.device;
    device.host = rank.host;
    device.kind = DeviceKind::kCpu;
    device.threads = threads;
    fleet.devices.push_back(std::move(device));
  }
  return fleet;
}

/// A plan and what it is for.
struct PlanToEstimate {
  JobSpec job;
  FleetSpec fleet;
  Plan plan;
};

Result<std::string> document_text(const std::string& path) {
  if (path != "-") return read_text(real_file_system(), path, kLargestDocument);
  std::string text;
  std::array<char, 1 << 16> part;
  while (std::cin.read(part.data(), part.size()), std::cin.gcount() > 0)
    text.append(part.data(), static_cast<size_t>(std::cin.gcount()));
  return text;
}

Result<JobSpec> read_job_document(const std::string& path) {
  MOTLEY_TRY(const std::string text, document_text(path));
  MOTLEY_TRY(const auto document, parse_json_file(text, path, ErrorCode::kInvalidSpec));
  MOTLEY_TRY(JobSpec job, job_from_json(document));
  MOTLEY_TRY_VOID(validate(job.model));
  return job;
}

/// Job and fleet may be packed with the plan.
Result<PlanToEstimate> parse_plan(const EstimateOptions& options, const std::string& text) {
  MOTLEY_TRY(const auto document, parse_json_file(text, options.plan, ErrorCode::kInvalidSpec));
  PlanToEstimate all;
  MOTLEY_TRY(all.plan, plan_from_json(document));
  if (!options.job.empty()) {
    MOTLEY_TRY(all.job, read_job_document(options.job));
  } else if (document.contains("job")) {
    MOTLEY_TRY(all.job, job_from_json(document["job"]));
    MOTLEY_TRY_VOID(validate(all.job.model));
  } else {
    return fail(ErrorCode::kUsage, "no job is packed with the plan: give --job");
  }
  MOTLEY_TRY(all.fleet, fleet_with(document, all.plan, options.threads));
  MOTLEY_TRY_VOID(complete(all.job, all.fleet, &all.plan));
  return all;
}

Result<Unit> estimate_plan(const EstimateOptions& options) {
  MOTLEY_TRY(const std::string text, document_text(options.plan));
  const auto parsed = parse_plan(options, text);
  if (!parsed) return fail(placed_in(parsed.error(), text, options.plan));
  const auto& [job, fleet, plan] = *parsed;
  RankMemoryCounter counter(
      job, plan, [&fleet = fleet](const Plan& part) { return device_islands(part, fleet); });
  nlohmann::json rows = nlohmann::json::array();
  if (!options.as_json) std::printf("%5s %-20s %s\n", "rank", "device", kBytesTitles);
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    const std::string& name = plan.ranks[static_cast<size_t>(rank)].device;
    const DeviceSpec& device = *fleet.find(name);
    const StagePlan& stage = stage_of(plan, role_of(plan, Rank(rank)));
    const MemoryEstimate bytes =
        counter.count(Rank(rank), traits_driven(job, device, stage.precision));
    nlohmann::json row = bytes_to_json(bytes);
    row["rank"] = rank;
    row["device"] = name;
    rows.push_back(std::move(row));
    if (!options.as_json)
      std::printf("%5d %-20s %s\n", rank, name.c_str(), bytes_columns(bytes).c_str());
  }
  if (options.as_json) std::printf("%s\n", rows.dump().c_str());
  return Unit{};
}

// --- work

Result<Unit> estimate_work(const std::string& path) {
  MOTLEY_TRY(const std::string text, document_text(path));
  MOTLEY_TRY(const auto document, parse_json_file(text, path, ErrorCode::kInvalidSpec));
  MOTLEY_TRY(const WorkRequest request, work_request_from_json(document));
  std::vector<WorkTable> tables;
  for (const WorkDevice& device : request.devices)
    tables.push_back(count_device(request.job, device));
  std::printf("%s\n", to_json(tables).dump().c_str());
  return Unit{};
}

Result<Unit> run_estimate(const EstimateOptions& options) {
  if (!options.work.empty()) return estimate_work(options.work);
  if (!options.plan.empty()) return estimate_plan(options);
  if (options.job.empty()) return fail(ErrorCode::kUsage, "estimate needs --job or --plan");
  MOTLEY_TRY(const JobSpec job, read_job_document(options.job));
  return estimate_layers(options, job);
}

}  // namespace

void add_estimate_command(CLI::App& app, Result<Unit>* outcome) {
  auto* command = app.add_subcommand(
      "estimate",
      "Bytes that the ranks of a plan need, or layers by kind; counted, without hardware");
  auto options = std::make_shared<EstimateOptions>();
  command->add_option(
      "--job", options->job,
      "job.json of a run or written by `motley plan` (default: packed with the plan); - is stdin");
  auto* plan =
      command->add_option("--plan", options->plan, "Of each rank of this plan; - is stdin");
  const auto list = [&](const char* name, auto& value, const char* help) {
    return command->add_option(name, value, help)->delimiter(',')->excludes(plan);
  };
  list("--layers", options->layers, "Any of embedding,block,head (default: all)");
  list("--micro-batches", options->micro_batches, "Samples, e.g. 1,2,4 (default: 1)")
      ->check(CLI::PositiveNumber);
  list("--shares", options->shares,
       "Of a rank that shares its layers, e.g. 0.75,0.25 (default: 1)");
  list("--recompute", options->recompute, "Of blocks: none,attention,mlp,block (default: none)");
  command->add_option("--device", options->device, "Of layers: cpu or cuda (default: cpu)")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->excludes(plan);
  command
      ->add_option("--precision", options->precision,
                   "Of layers: what the device computes in (default: as the job has it)")
      ->excludes(plan);
  command
      ->add_option("--work", options->work,
                   "Work and memory of the model and its layers on devices, from what `motley "
                   "simulate` asks (JSON); - is stdin")
      ->excludes(plan);
  command->add_option("--threads", options->threads, "Threads of the device, unless the plan says")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", options->as_json, "A list of objects");
  command->callback([=] { *outcome = run_estimate(*options); });
}

}  // namespace motley
