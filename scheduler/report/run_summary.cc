#include "scheduler/report/run_summary.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace motley {
namespace {

using nlohmann::json;

json or_null(const std::optional<double>& value) { return value ? json(*value) : json(nullptr); }

std::optional<double> optional_number(const json& from, const char* name) {
  const auto found = from.find(name);
  if (found == from.end() || found->is_null()) return std::nullopt;
  return found->get<double>();
}

/// A loss that is not finite is null in JSON.
double number_or_nan(const json& from, const char* name) {
  return optional_number(from, name).value_or(std::numeric_limits<double>::quiet_NaN());
}

json to_json(const RankActual& rank) {
  return {{"rank", rank.rank},
          {"device", rank.device},
          {"compute_seconds", rank.compute_seconds},
          {"wait_seconds", rank.wait_seconds},
          {"update_seconds", rank.update_seconds},
          {"samples", rank.samples},
          {"overruns", rank.overruns},
          {"sections", rank.sections}};
}

RankActual rank_from_json(const json& from) {
  RankActual rank;
  from.at("rank").get_to(rank.rank);
  from.at("device").get_to(rank.device);
  from.at("compute_seconds").get_to(rank.compute_seconds);
  from.at("wait_seconds").get_to(rank.wait_seconds);
  from.at("update_seconds").get_to(rank.update_seconds);
  from.at("samples").get_to(rank.samples);
  from.at("overruns").get_to(rank.overruns);
  from.at("sections").get_to(rank.sections);
  return rank;
}

RunSummary parse(const json& from) {
  RunSummary summary;
  from.at("run_dir").get_to(summary.run_dir);
  from.at("state").get_to(summary.state);
  from.at("steps").get_to(summary.steps);
  summary.first_loss = number_or_nan(from, "first_loss");
  summary.final_loss = number_or_nan(from, "final_loss");
  summary.eval_loss = optional_number(from, "eval_loss");
  from.at("samples_per_second").get_to(summary.samples_per_second);
  from.at("solo_sum_samples_per_second").get_to(summary.solo_sum_samples_per_second);
  from.at("efficiency").get_to(summary.efficiency);
  from.at("integer_bound_efficiency").get_to(summary.integer_bound_efficiency);
  summary.equal_split_samples_per_second = optional_number(from, "equal_split_samples_per_second");
  from.at("predicted_step_seconds").get_to(summary.predicted_step_seconds);
  from.at("actual_step_seconds").get_to(summary.actual_step_seconds);
  from.at("restarts").get_to(summary.restarts);
  from.at("weights_xxh3").get_to(summary.weights_xxh3);
  from.at("plan_id").get_to(summary.plan_id);
  const auto kind = evidence_from_name(from.at("kind").get<std::string>());
  if (!kind) throw std::invalid_argument("unknown kind of evidence");
  summary.kind = *kind;
  for (const json& rank : from.at("ranks")) summary.ranks.push_back(rank_from_json(rank));
  return summary;
}

}  // namespace

json to_json(const RunSummary& summary) {
  json ranks = json::array();
  for (const RankActual& rank : summary.ranks) ranks.push_back(to_json(rank));
  return {{"run_dir", summary.run_dir},
          {"state", summary.state},
          {"steps", summary.steps},
          {"first_loss", summary.first_loss},
          {"final_loss", summary.final_loss},
          {"eval_loss", or_null(summary.eval_loss)},
          {"samples_per_second", summary.samples_per_second},
          {"solo_sum_samples_per_second", summary.solo_sum_samples_per_second},
          {"efficiency", summary.efficiency},
          {"integer_bound_efficiency", summary.integer_bound_efficiency},
          {"equal_split_samples_per_second", or_null(summary.equal_split_samples_per_second)},
          {"predicted_step_seconds", summary.predicted_step_seconds},
          {"actual_step_seconds", summary.actual_step_seconds},
          {"restarts", summary.restarts},
          {"weights_xxh3", summary.weights_xxh3},
          {"plan_id", summary.plan_id},
          {"kind", name_of(summary.kind)},
          {"ranks", std::move(ranks)}};
}

Result<RunSummary> run_summary_from_json(const json& json) {
  try {
    return parse(json);
  } catch (const std::exception& error) {
    return fail(ErrorCode::kCorrupt, std::string("malformed report: ") + error.what());
  }
}

}  // namespace motley
