#include "scheduler/cli/foreign_plan.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/clock.h"
#include "core/file_system.h"
#include "core/json_file.h"
#include "core/json_place.h"
#include "core/profile.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/names.h"
#include "core/units.h"
#include "planner/grid/grid_plan_json.h"
#include "planner/grid/grid_search.h"
#include "scheduler/cli/job_options.h"
#include "scheduler/cli/output_file.h"
#include "scheduler/report/table.h"
#include "scheduler/run/measure.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr Bytes kLargestGridPlan{64 << 20};

/// What a plan is priced to take.
struct Priced {
  GridPlan plan;
  std::optional<GridRecord> search;  ///< none: it was given
  double wall_seconds = 0;
};

/// The profile's name of a device's type, case ignored. kInvalidSpec at the device.
Result<std::string> name_in(const ForeignProfile& profile, const DeviceSpec& device,
                            const std::string& path) {
  std::vector<std::string_view> known;
  std::string list;
  for (const auto& [name, of] : profile.devices) {
    if (type_matches(name, device.type) && type_matches(device.type, name)) return name;
    known.push_back(name);
    list += (list.empty() ? "" : ", ") + name;
  }
  const std::string near = did_you_mean(device.type, known.data(), known.size());
  return fail(ErrorCode::kInvalidSpec,
              path + " has no device of type '" + device.type + "'" +
                  (near.empty() ? " (it has " + list + ")" : " (did you mean '" + near + "'?)"),
              device.place);
}

/// The fleet's devices by type and memory, which the fleet may limit; in the order of the fleet.
Result<std::vector<GridType>> grid_types(const ForeignProfile& profile, const FleetSpec& fleet,
                                         const std::string& path) {
  std::vector<GridType> types;
  std::vector<std::map<std::string, int>> on_hosts;  // by type
  for (const DeviceSpec& device : fleet.devices) {
    MOTLEY_TRY(const std::string name, name_in(profile, device, path));
    const Bytes all = profile.devices.at(name).memory;
    const Bytes memory = std::min(all, device.memory.value_or(all));
    const auto same = std::find_if(types.begin(), types.end(), [&](const GridType& type) {
      return type.name == name && type.memory == memory;
    });
    const auto number = static_cast<size_t>(same - types.begin());
    if (same == types.end()) {
      types.push_back({name, memory});
      on_hosts.emplace_back();
    }
    ++on_hosts[number][device.host];
  }
  for (size_t i = 0; i < types.size(); ++i)
    for (const auto& [host, count] : on_hosts[i]) types[i].on_hosts.push_back(count);
  return types;
}

/// A grid says nothing of grains or of sums that any cut leaves the same.
Result<Unit> check_numerics(const JobSpec& job) {
  if (job.train.numerics != Numerics::kExact) return Unit{};
  const auto place = job.places.find("train.numerics");
  return fail(ErrorCode::kInvalidSpec,
              "'exact' cannot be planned by a foreign profile (tensor parallelism contradicts it)",
              place == job.places.end() ? SourcePlace{} : place->second);
}

/// How many devices a plan has is not asked for here.
Result<Unit> check_count(const JobSpec& job, const FleetSpec& fleet) {
  const auto& count = job.devices.count;
  if (!count || static_cast<int>(fleet.devices.size()) <= count->high) return Unit{};
  const auto place = job.places.find("resources.devices.count");
  return fail(ErrorCode::kUnsupported,
              "with a foreign profile 'count' cannot choose among the " +
                  std::to_string(fleet.devices.size()) +
                  " devices there are (name fewer of them in the fleet)",
              place == job.places.end() ? SourcePlace{} : place->second);
}

/// Grids have as many replicas, stages and devices that share them as is quickest, each all of its
/// state, and devices of a type have no names.
Result<Unit> check_shape(const JobSpec& job) {
  const std::pair<const char*, bool> keys[] = {
      {"parallel.data", job.parallel.data.has_value()},
      {"parallel.pipeline", job.parallel.pipeline.has_value()},
      {"parallel.tensor", job.parallel.tensor.has_value()},
      {"parallel.shard_optimizer", job.parallel.shard_optimizer == ShardOptimizer::kOn},
      {"pin.replicas", !job.pin.replicas.empty()}};
  for (const auto& [key, is_given] : keys)
    if (is_given)
      return fail(ErrorCode::kUnsupported,
                  "'" + std::string(key) + "' is not kept to with a foreign profile (leave it out)",
                  place_of(job, key));
  return Unit{};
}

Result<GridPlan> read_scored(const std::string& path, const ForeignCosts& costs) {
  MOTLEY_TRY(const std::string text, read_text(real_file_system(), path, kLargestGridPlan));
  MOTLEY_TRY(const json document, parse_json_file(text, path, ErrorCode::kInvalidSpec));
  const Result<GridPlan> plan = read_grid_plan(document, costs);
  if (!plan) return fail(placed_in(plan.error(), text, path));
  if (const auto batch = document.find("global_batch");
      batch != document.end() && *batch != costs.global_batch())
    return fail(placed_in(
        invalid_at("/global_batch",
                   "the job's steps have " + std::to_string(costs.global_batch()) + " samples")
            .value(),
        text, path));
  return *plan;
}

Result<Priced> priced(const ForeignPlanOptions& options, const ForeignCosts& costs) {
  if (!options.score.empty()) {
    MOTLEY_TRY(GridPlan plan, read_scored(options.score, costs));
    return Priced{std::move(plan), {}, 0};
  }
  const Nanos before = steady_clock().now();
  MOTLEY_TRY(GridResult found, search_grid(costs, costs.groups()));
  return Priced{std::move(found.plan), found.search, seconds_of(steady_clock().now() - before)};
}

json document_of(const Priced& priced, const ForeignCosts& costs, const ForeignProfile& profile) {
  json document = to_json(priced.plan, costs.grid_types());
  const double seconds = costs.step_seconds(priced.plan);
  document["model"] = profile.name;
  document["kind"] = name_of(Evidence::kSimulated);
  document["global_batch"] = costs.global_batch();
  document["prediction"] = {{"step_seconds", seconds},
                            {"simulated_step_seconds", costs.simulated_seconds(priced.plan)},
                            {"samples_per_second", costs.global_batch() / seconds}};
  if (priced.search)
    document["search"] = to_json(*priced.search, grid_space(costs, costs.groups()));
  return document;
}

std::string stages_table(const GridPlan& plan, const ForeignCosts& costs) {
  TextTable table({{"stage"},
                   {"layers", Align::kLeft},
                   {"device", Align::kLeft},
                   {"tensor"},
                   {"devices"},
                   {"of a micro-batch"},
                   {"memory", Align::kLeft}});
  const auto count = static_cast<int>(plan.stages.size());
  const int passes = costs.passes(plan.micro_batch, plan.replicas);
  for (int s = 0; s < count; ++s) {
    const GridStage& stage = plan.stages[static_cast<size_t>(s)];
    const GridType& type = costs.grid_types()[static_cast<size_t>(stage.config.type)];
    double computing = 0;
    for (int layer = stage.first; layer < stage.end; ++layer)
      computing += costs.compute(stage.config, plan.micro_batch, layer);
    const double bytes =
        costs.fixed_bytes(stage) +
        std::min(count - s, passes) * costs.bytes_in_flight(stage, plan.micro_batch);
    table.add_row(
        {std::to_string(s), std::to_string(stage.first) + ".." + std::to_string(stage.end - 1),
         type.name, std::to_string(stage.config.degree),
         std::to_string(stage.config.degree * plan.replicas), format_seconds(computing),
         format_bytes(Bytes(static_cast<int64_t>(bytes))) + " of " + format_bytes(type.memory)});
  }
  return table.to_string();
}

void print(const Priced& priced, const json& document, const ForeignCosts& costs) {
  const GridPlan& plan = priced.plan;
  std::printf("%d replicas, micro-batch %d, %d of them a step and replica\n%s", plan.replicas,
              plan.micro_batch, costs.passes(plan.micro_batch, plan.replicas),
              stages_table(plan, costs).c_str());
  const json& prediction = document["prediction"];
  std::printf("step %s (%s by simulation), %s samples/s, simulated from the profile\n",
              format_seconds(prediction["step_seconds"].get<double>()).c_str(),
              format_seconds(prediction["simulated_step_seconds"].get<double>()).c_str(),
              format_fixed(prediction["samples_per_second"].get<double>(), 2).c_str());
  for (const auto& [name, count] : document["left_out"].items())
    std::printf("left out: %d of %s\n", count.get<int>(), name.c_str());
  if (priced.search)
    std::printf("no plan of its kind is more than %s quicker: %s\n",
                format_percent(priced.search->gap()).c_str(),
                document["search"]["space"].get<std::string>().c_str());
}

}  // namespace

Result<bool> is_foreign_profile(const std::string& path) {
  MOTLEY_TRY(const json document,
             read_json_file(real_file_system(), path, ErrorCode::kInvalidSpec));
  return document.is_object() && document.contains("model");
}

Result<int> plan_by_foreign_profile(const ForeignPlanOptions& options) {
  MOTLEY_TRY(JobSpec job, read_job_with(options.job, options.set, JobParts::kWithoutModel));
  MOTLEY_TRY(const FleetSpec all, resolve_fleet(options.fleet, job));
  MOTLEY_TRY(const FleetSpec fleet, admitted(all, job));
  MOTLEY_TRY_VOID(check_numerics(job));
  MOTLEY_TRY_VOID(check_count(job, fleet));
  MOTLEY_TRY_VOID(check_shape(job));
  MOTLEY_TRY(const ForeignProfile profile,
             read_foreign_profile(real_file_system(), options.profile));
  MOTLEY_TRY(std::vector<GridType> types, grid_types(profile, fleet, options.profile));
  const ForeignCosts costs(profile, std::move(types), job.train.global_batch, kMemoryHeadroom);
  MOTLEY_TRY(const Priced found, priced(options, costs));
  json document = document_of(found, costs, profile);
  if (!options.output.empty())
    MOTLEY_TRY_VOID(write_output_file(options.output, document.dump(2) + "\n"));
  if (options.json) {
    if (found.search) document["search"]["wall_seconds"] = found.wall_seconds;
    std::printf("%s\n", document.dump(2).c_str());
    return 0;
  }
  print(found, document, costs);
  if (!options.output.empty()) std::printf("written to %s\n", options.output.c_str());
  return 0;
}

}  // namespace motley
