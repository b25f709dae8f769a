#include "scheduler/run/given_plan.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/json_fields.h"
#include "core/json_file.h"
#include "core/json_place.h"
#include "core/plan_completion.h"
#include "core/spec/json.h"
#include "core/spec/names.h"
#include "planner/costs/cost_model.h"
#include "scheduler/run/count_memory.h"

namespace motley {
namespace {

constexpr Bytes kLargestPlan{256 << 20};
constexpr const char* kNoSearch = "given: no search";

std::string wanted_text(const CountRange& count) {
  if (count.low == count.high) return std::to_string(count.low);
  return (count.low > 0 ? std::to_string(count.low) : "") + ".." +
         (count.high < INT32_MAX ? std::to_string(count.high) : "");
}

/// A search keeps to resources.devices by itself; only what it admits is measured.
Result<Unit> check_meets_demands(const Plan& plan, const JobSpec& job, const FleetSpec& fleet) {
  const FleetSpec fit = fitting(fleet, job);
  for (size_t i = 0; i < plan.ranks.size(); ++i) {
    const DeviceSpec& device = *fleet.find(plan.ranks[i].device);
    if (fit.find(device.id) != nullptr) continue;
    std::string demand = unmet_demand(device, job);
    if (demand.empty()) demand = job.devices.key + ".limits";
    return invalid_at("/ranks/" + std::to_string(i) + "/device",
                      "the plan uses device " + device.id + " (" + device.type +
                          "), which the job excludes: " + demand);
  }
  const std::optional<CountRange>& count = job.devices.count;
  if (!count || (plan.world_size() >= count->low && plan.world_size() <= count->high))
    return Unit{};
  return invalid_at("/ranks", "the plan has " + std::to_string(plan.world_size()) +
                                  " ranks; the job wants resources.devices.count " +
                                  wanted_text(*count));
}

/// A profile tells nothing of a device in another precision than it was measured in.
Result<Unit> check_measured_in(const Plan& plan, const Profile& profile) {
  for (size_t i = 0; i < plan.replicas.size(); ++i)
    for (size_t j = 0; j < plan.replicas[i].stages.size(); ++j) {
      const StagePlan& stage = plan.replicas[i].stages[j];
      for (const Rank rank : stage.ranks) {
        const std::string& device = plan.ranks[static_cast<size_t>(rank.value())].device;
        const DeviceProfile* measured = profile.find(device);
        if (measured == nullptr || measured->precision == Precision::kAuto ||
            measured->precision == stage.precision)
          continue;
        const std::string fastest = spec_name(measured->precision);
        return invalid_at(
            "/replicas/" + std::to_string(i) + "/stages/" + std::to_string(j) + "/precision",
            "the stage is to compute in " + spec_name(stage.precision) + ", but " + device +
                " was measured in " + fastest + ", its fastest; say \"precision\": \"" + fastest +
                "\" here, or train.precision in the job");
      }
    }
  return Unit{};
}

/// What is known before anything is measured.
Result<Unit> check_given_limits(const GivenPlan& given, const JobSpec& job,
                                const FleetSpec& fleet) {
  Plan plan = given.plan;
  for (size_t i = 0; i < plan.ranks.size(); ++i) {
    RankPrediction& rank = plan.prediction.ranks.emplace_back();
    rank.rank = Rank(static_cast<int>(i));
    rank.memory = given.counted[i].total;
    rank.memory_limit = fleet.find(plan.ranks[i].device)->memory.value_or(Bytes(INT64_MAX));
  }
  return validate_cut(plan, job.model);
}

}  // namespace

bool is_given(const Plan& plan) { return plan.search.space == kNoSearch; }

Result<GivenPlan> read_given_plan(const std::string& path, const JobSpec& job,
                                  const FleetSpec& fleet) {
  GivenPlan given;
  given.path = path;
  MOTLEY_TRY(given.text, read_text(real_file_system(), path, kLargestPlan));
  MOTLEY_TRY(const auto document, parse_json_file(given.text, path, ErrorCode::kInvalidSpec));
  const auto refused = [&](const Error& error) { return fail(placed_in(error, given.text, path)); };
  if (document.is_object() && document.contains("stages") && !document.contains("ranks"))
    return fail(ErrorCode::kInvalidSpec,
                "this is a grid plan of a foreign profile: `motley plan --profile` prices it, "
                "nothing runs it",
                SourcePlace{path, 1, 1});
  auto plan = plan_from_json(document);
  if (!plan) return refused(plan.error());
  given.plan = std::move(*plan);
  given.plan.prediction = {};  // it may be of another profile
  if (const auto done = complete(job, fleet, &given.plan); !done) return refused(done.error());
  if (const auto met = check_meets_demands(given.plan, job, fleet); !met)
    return refused(met.error());
  MOTLEY_TRY(given.counted, count_memory(given.plan, job, fleet));
  if (const auto fits = check_given_limits(given, job, fleet); !fits) return refused(fits.error());
  return given;
}

Result<Plan> price(const GivenPlan& given, const JobSpec& job, const FleetSpec& fleet,
                   const Profile& profile) {
  Plan plan = given.plan;
  const auto refused = [&](const Error& error) {
    return fail(placed_in(error, given.text, given.path));
  };
  if (const auto same = check_measured_in(plan, profile); !same) return refused(same.error());
  const PlanRequest request{job, fleet, profile};
  if (const auto predicted = predict(request, &plan, given.counted); !predicted)
    return refused(predicted.error());
  // Known only now that links are:
  if (plan.compression != given.plan.compression || plan.sync != given.plan.sync) {
    MOTLEY_TRY(const std::vector<RankMemory> counted, count_memory(plan, job, fleet));
    MOTLEY_TRY_VOID(predict(request, &plan, counted));
  }
  plan.job_key = profile.job_key;
  plan.search = {};
  plan.search.space = kNoSearch;
  plan.search.step_seconds = plan.prediction.step_seconds;
  plan.left_out.clear();
  plan.id = plan_id(plan);
  if (const auto valid = validate(plan, job.model); !valid) return refused(valid.error());
  return plan;
}

nlohmann::json packed(const Plan& plan, JobSpec job, const FleetSpec& fleet) {
  job.source = job.fleet_path = "";
  FleetSpec used = fleet;
  used.source = "";
  used.devices.clear();
  for (const RankPlacement& rank : plan.ranks) used.devices.push_back(*fleet.find(rank.device));
  nlohmann::json document = to_json(plan);
  document["job"] = to_json(job);
  document["fleet"] = to_json(used);
  return document;
}

}  // namespace motley
