#include "scheduler/run/count_memory.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>

#include "core/hash.h"
#include "core/json_fields.h"
#include "core/json_file.h"
#include "core/spec/json.h"
#include "core/spec/names.h"
#include "scheduler/launch/command.h"
#include "scheduler/launch/worker_program.h"
#include "scheduler/run/given_plan.h"

namespace motley {
namespace {

constexpr double kCountingSeconds = 120;

/// Its rows, of a document on its stdin.
Result<nlohmann::json> estimate(const std::vector<std::string>& options, std::string document) {
  MOTLEY_TRY(const std::string worker, worker_program());
  std::vector<std::string> command{worker, "estimate", "--json"};
  command.insert(command.end(), options.begin(), options.end());
  MOTLEY_TRY(const CommandOutput output, run_command({std::move(command), std::move(document)},
                                                     nanos_of_seconds(kCountingSeconds)));
  if (!output.status.ok())
    return fail(error_code_of_exit(output.status.status),
                "cannot count the memory of the plan: " + last_words_of_worker(output.err));
  return parse_json_file(output.out, worker + " estimate", ErrorCode::kBrokenInstall);
}

Result<Bytes> bytes_of_row(const nlohmann::json& row, const std::string& member) {
  if (row.is_object() && row.contains(member) && row[member].is_number_integer())
    return Bytes(row[member].get<int64_t>());
  return fail(ErrorCode::kBrokenInstall, "motley-worker estimate says nothing of " + member);
}

std::string listed(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

/// With as many digits as tell them apart.
std::string shares_of(const std::vector<int>& heads, int all) {
  std::string text;
  for (const int own : heads) {
    char share[32];
    std::snprintf(share, sizeof share, "%.17g", static_cast<double>(own) / all);
    text += (text.empty() ? "" : ",") + std::string(share);
  }
  return text;
}

/// Of so many ranks.
Result<std::vector<RankMemory>> count_packed(std::string document, size_t ranks) {
  MOTLEY_TRY(const auto rows, estimate({"--plan", "-"}, std::move(document)));
  std::vector<RankMemory> counted;
  for (const auto& row : rows) {
    RankMemory& rank = counted.emplace_back();
    MOTLEY_TRY(rank.total, bytes_of_row(row, "total_bytes"));
    MOTLEY_TRY(rank.host, bytes_of_row(row, "host_total_bytes"));
  }
  if (counted.size() == ranks) return counted;
  return fail(ErrorCode::kBrokenInstall, "motley-worker estimate counted other ranks");
}

}  // namespace

Result<std::vector<RankMemory>> count_memory(const Plan& plan, const JobSpec& job,
                                             const FleetSpec& fleet) {
  return count_packed(packed(plan, job, fleet).dump(), plan.ranks.size());
}

Result<std::vector<MemoryParts>> count_memory_parts(const Plan& plan, const JobSpec& job,
                                                    const FleetSpec& fleet) {
  MOTLEY_TRY(const auto rows, estimate({"--plan", "-"}, packed(plan, job, fleet).dump()));
  std::vector<MemoryParts> counted;
  for (const auto& row : rows) {
    MemoryParts& rank = counted.emplace_back();
    MOTLEY_TRY(rank.parameters, bytes_of_row(row, "parameter_bytes"));
    MOTLEY_TRY(rank.gradients, bytes_of_row(row, "gradient_bytes"));
    MOTLEY_TRY(rank.optimizer, bytes_of_row(row, "optimizer_bytes"));
    MOTLEY_TRY(const Bytes saved, bytes_of_row(row, "saved_bytes"));
    MOTLEY_TRY(const Bytes transient, bytes_of_row(row, "transient_bytes"));
    rank.activations = saved + transient;
    MOTLEY_TRY(rank.total, bytes_of_row(row, "total_bytes"));
    MOTLEY_TRY(rank.host, bytes_of_row(row, "host_total_bytes"));
  }
  if (counted.size() == plan.ranks.size()) return counted;
  return fail(ErrorCode::kBrokenInstall, "motley-worker estimate counted other ranks");
}

Result<LayerMemoryTable> count_layers(const JobSpec& job, const LayersToCount& layers) {
  const Recompute recompute = layers.recompute;
  std::vector<std::string> options{
      "--job",           "-",
      "--micro-batches", listed(layers.micro_batches),
      "--precision",     spec_name(layers.precision),
      "--device",        layers.device == DeviceKind::kCuda ? "cuda" : "cpu",
      "--recompute",     recompute == Recompute::kNone ? "none" : "none," + spec_name(recompute)};
  if (!layers.heads.empty()) {
    options.emplace_back("--shares");
    options.push_back(shares_of(layers.heads, job.model.heads));
  }
  MOTLEY_TRY(const auto rows, estimate(options, to_json(job).dump()));
  LayerMemoryTable table;
  for (const auto& row : rows) {  // of blocks that compute again after those that do not
    LayerMemory memory;
    MOTLEY_TRY(memory.fixed, bytes_of_row(row, "static_bytes"));
    MOTLEY_TRY(memory.saved, bytes_of_row(row, "saved_bytes"));
    MOTLEY_TRY(memory.transient, bytes_of_row(row, "transient_bytes"));
    MOTLEY_TRY(memory.state, bytes_of_row(row, "optimizer_bytes"));
    const auto heads = static_cast<int>(std::lround(row.value("share", 1.0) * job.model.heads));
    table[{row.value("layer", ""), heads, row.value("micro_batch", 0)}] = memory;
  }
  return table;
}

namespace {

/// `whole`: heads of a layer that nobody shares.
LayersToCount not_in(const LayerMemoryTable& table, const LayersToCount& asked, int whole) {
  LayersToCount missing = asked;
  const std::vector<int> all = asked.heads.empty() ? std::vector{whole} : asked.heads;
  const auto is_known = [&](int heads, int size) { return table.contains({"block", heads, size}); };
  std::erase_if(missing.micro_batches, [&](int size) {
    return std::all_of(all.begin(), all.end(), [&](int heads) { return is_known(heads, size); });
  });
  std::erase_if(missing.heads, [&](int heads) {
    return std::all_of(asked.micro_batches.begin(), asked.micro_batches.end(),
                       [&](int size) { return is_known(heads, size); });
  });
  return missing;
}

/// The job as if a plan of some of its samples were all: what a rank needs depends on its plan.
JobSpec job_of_part(JobSpec job, const Plan& plan) {
  job.pin = {};
  job.parallel.data = job.parallel.pipeline = job.parallel.tensor = std::nullopt;
  job.train.global_batch = plan.global_batch;
  if (job.train.grain) job.train.grain = plan.grain;
  return job;
}

}  // namespace

MemoryCounter memory_counter(const PlanRequest& request) {
  using Key = std::tuple<DeviceKind, Precision, Recompute>;
  const auto known = std::make_shared<std::map<Key, LayerMemoryTable>>();
  const auto layers = [&request, known](const LayersToCount& asked) -> Result<LayerMemoryTable> {
    LayerMemoryTable& table = (*known)[{asked.device, asked.precision, asked.recompute}];
    const LayersToCount missing = not_in(table, asked, request.job.model.heads);
    if (missing.micro_batches.empty()) return table;
    MOTLEY_TRY(const LayerMemoryTable more, count_layers(request.job, missing));
    table.insert(more.begin(), more.end());
    return table;
  };
  // Searches come by the same plans again and again, and most of their time is spent in counting.
  const auto counted = std::make_shared<std::map<std::string, std::vector<RankMemory>>>();
  const auto count = [&request, counted](const Plan& plan) -> Result<std::vector<RankMemory>> {
    Plan bare = plan;
    bare.prediction = {};
    bare.search = {};
    bare.left_out = {};
    bare.id.clear();
    std::string document = packed(bare, job_of_part(request.job, plan), request.fleet).dump();
    const std::string hash = xxh3_128_hex(document);
    const auto before = counted->find(hash);
    if (before != counted->end()) return before->second;
    MOTLEY_TRY(std::vector<RankMemory> bytes, count_packed(std::move(document), plan.ranks.size()));
    return counted->emplace(hash, std::move(bytes)).first->second;
  };
  return {count, layers};
}

}  // namespace motley
