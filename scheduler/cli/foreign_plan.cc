#include "scheduler/cli/foreign_plan.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "core/clock.h"
#include "core/file_system.h"
#include "core/json_file.h"
#include "core/json_place.h"
#include "core/log.h"
#include "core/profile.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/names.h"
#include "core/units.h"
#include "planner/grid/grid_plan_json.h"
#include "planner/grid/grid_reasons.h"
#include "planner/grid/grid_search.h"
#include "planner/questions/objective.h"
#include "scheduler/cli/job_options.h"
#include "scheduler/cli/output_file.h"
#include "scheduler/report/table.h"
#include "scheduler/run/measure.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr Bytes kLargestGridPlan{64 << 20};

/// What a plan is asked for: of devices all of the fleet, and those that the job admits.
struct ForeignRequest {
  JobSpec job;
  FleetSpec all, admitted;
  ForeignProfile profile;
};

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
/// state, and devices of a type have no names. What is computed and sent is as it was measured.
Result<Unit> check_shape(const JobSpec& job) {
  const std::pair<const char*, bool> keys[] = {
      {"parallel.data", job.parallel.data.has_value()},
      {"parallel.pipeline", job.parallel.pipeline.has_value()},
      {"parallel.tensor", job.parallel.tensor.has_value()},
      {"parallel.shard_optimizer", job.parallel.shard_optimizer == ShardOptimizer::kOn},
      {"parallel.compress", job.parallel.compress.kind != CodecKind::kOff &&
                                job.parallel.compress.kind != CodecKind::kAuto},
      {"parallel.sync.across", job.parallel.sync.across > 1},
      {"train.precision",
       job.train.precision != Precision::kAuto || !job.train.precision_by_type.empty()},
      {"train.loss_scale", job.train.loss_scale.has_value()},
      {"pin.replicas", !job.pin.replicas.empty()}};
  for (const auto& [key, is_given] : keys)
    if (is_given)
      return fail(ErrorCode::kUnsupported,
                  "'" + std::string(key) + "' is not kept to with a foreign profile (leave it out)",
                  place_of(job, key));
  return Unit{};
}

Result<ForeignRequest> read_foreign_request(const ForeignPlanOptions& options) {
  ForeignRequest request;
  MOTLEY_TRY(request.job, read_job_with(options.job, options.set, JobParts::kWithoutModel));
  MOTLEY_TRY(request.all, resolve_fleet(options.fleet, request.job));
  MOTLEY_TRY(request.admitted, admitted(request.all, request.job));
  MOTLEY_TRY_VOID(check_numerics(request.job));
  MOTLEY_TRY_VOID(check_count(request.job, request.admitted));
  MOTLEY_TRY_VOID(check_shape(request.job));
  MOTLEY_TRY(request.profile, read_foreign_profile(real_file_system(), options.profile));
  return request;
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
  Result<GridResult> found = search_grid(costs, costs.groups());
  if (!found && found.error().code == ErrorCode::kNoPlan)
    return fail(ErrorCode::kNoPlan, why_no_grid(costs));
  if (!found) return fail(found.error());
  return Priced{std::move(found->plan), found->search, seconds_of(steady_clock().now() - before)};
}

/// Also of devices that the job does not admit.
json left_out_why(const Priced& priced, const ForeignCosts& costs, const ForeignRequest& request) {
  std::map<std::pair<std::string, std::string>, int> counts;  // by type and reason
  const GridOrigin origin = !priced.search                    ? GridOrigin::kGiven
                            : priced.search->is_best_of_all() ? GridOrigin::kProvedBest
                                                              : GridOrigin::kFound;
  for (const GridLeftOut& left : left_out_of(priced.plan, costs, origin))
    counts[{left.type, left.why}] += left.devices;
  std::unordered_set<std::string_view> admitted;
  for (const DeviceSpec& device : request.admitted.devices) admitted.insert(device.id);
  for (const DeviceSpec& device : request.all.devices)
    if (!admitted.contains(device.id))
      ++counts[{device.type, why_not_admitted(device, request.job)}];
  json list = json::array();
  for (const auto& [what, devices] : counts)
    list.push_back({{"type", what.first}, {"devices", devices}, {"why", what.second}});
  return list;
}

/// Empty where a type that is used has no price.
std::optional<double> cost_per_hour(const GridPlan& plan, const ForeignCosts& costs,
                                    const ForeignProfile& profile) {
  double cost = 0;
  for (int type = 0; type < costs.types(); ++type) {
    const int devices = devices_of(plan, type);
    if (devices == 0) continue;
    const std::string& name = costs.grid_types()[static_cast<size_t>(type)].name;
    const double price = profile.devices.at(name).price_per_hour;
    if (price <= 0) return std::nullopt;
    cost += price * devices;
  }
  return cost;
}

/// Of all steps of the job; its cost where prices are known.
json bill_of_steps(int64_t steps, const json& prediction) {
  const double cost_per_hour = prediction.value("cost_per_hour", 0.0);
  const Bill bill = bill_of(prediction.at("step_seconds").get<double>(), cost_per_hour, steps);
  json document = {{"steps", steps}, {"seconds", bill.seconds}};
  if (cost_per_hour > 0) document["cost"] = bill.cost;
  return document;
}

json document_of(const Priced& priced, const ForeignCosts& costs, const ForeignRequest& request) {
  json document = to_json(priced.plan, costs.grid_types());
  const double seconds = costs.step_seconds(priced.plan);
  document["model"] = request.profile.name;
  document["kind"] = name_of(Evidence::kSimulated);
  document["global_batch"] = costs.global_batch();
  document["prediction"] = {{"step_seconds", seconds},
                            {"simulated_step_seconds", costs.simulated_seconds(priced.plan)},
                            {"samples_per_second", costs.global_batch() / seconds}};
  if (const auto cost = cost_per_hour(priced.plan, costs, request.profile))
    document["prediction"]["cost_per_hour"] = *cost;
  if (request.job.train.steps > 0)
    document["bill"] = bill_of_steps(request.job.train.steps, document["prediction"]);
  document["left_out_why"] = left_out_why(priced, costs, request);
  if (priced.search)
    document["search"] = to_json(*priced.search, grid_space(costs, costs.groups(), *priced.search));
  return document;
}

std::string stages_table(const GridPlan& plan, const ForeignCosts& costs) {
  TextTable table({{"stage"},
                   {"layers", Align::kLeft},
                   {"replicas"},
                   {"device", Align::kLeft},
                   {"tensor"},
                   {"devices"},
                   {"of a micro-batch"},
                   {"memory", Align::kLeft}});
  for (size_t s = 0; s < plan.stages.size(); ++s)
    for (const GridReplicas& replicas : replicas_of(plan)) {
      const GridStage& stage = plan.stages[s];
      const GridConfig config = replicas.configs[s];
      const GridType& type = costs.grid_types()[static_cast<size_t>(config.type)];
      double computing = 0;
      for (int layer = stage.first; layer < stage.end; ++layer)
        computing += costs.compute(config, plan.micro_batch, layer);
      const double bytes = bytes_of_stage(plan, s, config, costs);
      table.add_row(
          {std::to_string(s), std::to_string(stage.first) + ".." + std::to_string(stage.end - 1),
           std::to_string(replicas.count), type.name, std::to_string(config.degree),
           std::to_string(config.degree * replicas.count), format_seconds(computing),
           format_bytes(Bytes(static_cast<int64_t>(bytes))) + " of " + format_bytes(type.memory)});
    }
  return table.to_string();
}

/// "2000 steps: 5h10m, cost 12.40".
void print_bill(const json& bill) {
  std::printf(
      "%lld steps: %s%s\n", static_cast<long long>(bill["steps"].get<int64_t>()),
      format_seconds(bill["seconds"].get<double>()).c_str(),
      bill.contains("cost") ? (", cost " + cost_text(bill["cost"].get<double>())).c_str() : "");
}

void print(const Priced& priced, const json& document, const ForeignCosts& costs) {
  const GridPlan& plan = priced.plan;
  std::printf("%d replicas, micro-batch %d, %d of them a step and replica\n%s", plan.replicas,
              plan.micro_batch, costs.passes(plan.micro_batch, plan.replicas),
              stages_table(plan, costs).c_str());
  const json& prediction = document["prediction"];
  const std::string cost =
      prediction.contains("cost_per_hour")
          ? ", " + cost_text(prediction["cost_per_hour"].get<double>()) + " an hour"
          : "";
  std::printf("step %s (%s by simulation), %s samples/s%s, simulated from the profile\n",
              format_seconds(prediction["step_seconds"].get<double>()).c_str(),
              format_seconds(prediction["simulated_step_seconds"].get<double>()).c_str(),
              format_fixed(prediction["samples_per_second"].get<double>(), 2).c_str(),
              cost.c_str());
  if (document.contains("bill")) print_bill(document["bill"]);
  for (const json& left : document["left_out_why"])
    std::printf("left out: %d of %s (%s)\n", left["devices"].get<int>(),
                left["type"].get<std::string>().c_str(), left["why"].get<std::string>().c_str());
  if (priced.search)
    std::printf("no plan of its kind is more than %s quicker: %s\n",
                format_percent(priced.search->gap()).c_str(),
                document["search"]["space"].get<std::string>().c_str());
}

}  // namespace

Result<bool> is_foreign_profile(const std::string& path) {
  MOTLEY_TRY(const json document,
             read_json_file(real_file_system(), path, ErrorCode::kInvalidSpec));
  if (!document.is_object())
    return fail(ErrorCode::kInvalidSpec, "a profile is a JSON object", {path, 0, 0});
  if (document.contains("model")) return true;
  for (const char* key : {"job_key", "job", "code_version"})
    if (document.contains(key)) return false;
  constexpr std::string_view kModel = "model";
  std::string near;
  for (const auto& [key, value] : document.items())
    if (!did_you_mean(key, &kModel, 1).empty())
      near = " (did '" + one_line(key) + "' mean 'model'?)";
  return fail(ErrorCode::kInvalidSpec,
              "neither a profile by `motley profile --json`, which has 'job_key', nor one that "
              "brings its 'model'" +
                  near,
              {path, 0, 0});
}

Result<int> plan_by_foreign_profile(const ForeignPlanOptions& options) {
  MOTLEY_TRY(const ForeignRequest request, read_foreign_request(options));
  const JobSpec& job = request.job;
  MOTLEY_TRY(std::vector<GridType> types,
             grid_types(request.profile, request.admitted, options.profile));
  const ForeignCosts costs(request.profile, std::move(types), job.train.global_batch,
                           kMemoryHeadroom);
  MOTLEY_TRY(const Priced found, priced(options, costs));
  json document = document_of(found, costs, request);
  if (!options.output.empty())
    MOTLEY_TRY_VOID(write_output_file(options.output, document.dump(2) + "\n"));
  if (options.json) {
    if (found.search) document["search"]["wall_seconds"] = found.wall_seconds;
    std::printf("%s\n", document.dump(2).c_str());
    return 0;
  }
  if (job.places.contains("model"))
    std::printf("the job's own model is left aside: the profile brings its own\n");
  print(found, document, costs);
  if (!options.output.empty()) std::printf("written to %s\n", options.output.c_str());
  return 0;
}

}  // namespace motley
