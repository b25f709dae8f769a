#include "scheduler/report/run_summary.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "core/or_null.h"

namespace motley {
namespace {

using nlohmann::json;

json or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

template <class T>
void read_known(const json& from, const char* name, std::optional<T>& to) {
  if (const json& value = from.at(name); !value.is_null()) to = value.get<T>();
}
void read_known(const json& from, const char* name, std::string& to) {
  if (const json& value = from.at(name); !value.is_null()) value.get_to(to);
}

/// A loss that is not finite is null in JSON.
double number_or_nan(const json& from, const char* name) {
  std::optional<double> number;
  read_known(from, name, number);
  return number.value_or(std::numeric_limits<double>::quiet_NaN());
}

SectionCount read_paced(const json& from) {
  return {from.at("sections").get<int64_t>(), from.at("overruns").get<int64_t>()};
}

RankActual rank_from_json(const json& from) {
  auto rank = rank_actual_from_json(from);
  if (!rank) throw std::invalid_argument(rank.error().message);
  return std::move(*rank);
}

json to_json(const SetAside& checkpoint) {
  return {{"step", checkpoint.step},
          {"directory", checkpoint.directory},
          {"why", or_null(checkpoint.why)}};
}

SetAside set_aside_from_json(const json& from) {
  SetAside checkpoint;
  from.at("step").get_to(checkpoint.step);
  from.at("directory").get_to(checkpoint.directory);
  read_known(from, "why", checkpoint.why);
  return checkpoint;
}

json to_json(const OutOfMemory& what) {
  return {{"device", what.device},
          {"type", what.type},
          {"micro_batch", what.micro_batch},
          {"then", what.then > 0 ? json(what.then) : json(nullptr)}};
}

OutOfMemory out_of_memory_from_json(const json& from) {
  OutOfMemory what;
  from.at("device").get_to(what.device);
  from.at("type").get_to(what.type);
  from.at("micro_batch").get_to(what.micro_batch);
  if (const json& then = from.at("then"); !then.is_null()) then.get_to(what.then);
  return what;
}

std::optional<EqualSplit> read_equal_split(const json& from) {
  EqualSplit equal;
  std::optional<double> speed;
  read_known(from, "equal_split_form", equal.form);
  read_known(from, "equal_split_samples_per_second", speed);
  if (from.contains("equal_split_not_measured"))  // missing in reports of older programs
    read_known(from, "equal_split_not_measured", equal.not_measured);
  if (!speed && equal.not_measured.empty()) return std::nullopt;
  equal.samples_per_second = speed.value_or(0);
  return equal;
}

RunSummary parse(const json& from) {
  RunSummary summary;
  from.at("run_dir").get_to(summary.run_dir);
  from.at("state").get_to(summary.state);
  from.at("steps").get_to(summary.steps);
  summary.first_loss = number_or_nan(from, "first_loss");
  summary.final_loss = number_or_nan(from, "final_loss");
  read_known(from, "eval_loss", summary.eval_loss);
  read_known(from, "samples_per_second", summary.samples_per_second);
  read_known(from, "solo_sum_samples_per_second", summary.solo_sum_samples_per_second);
  read_known(from, "efficiency", summary.efficiency);
  read_known(from, "integer_bound_efficiency", summary.integer_bound_efficiency);
  summary.equal_split = read_equal_split(from);
  read_known(from, "predicted_step_seconds", summary.predicted_step_seconds);
  read_known(from, "actual_step_seconds", summary.actual_step_seconds);
  read_known(from, "restarts", summary.restarts);
  read_known(from, "weights_xxh3", summary.weights_xxh3);
  read_known(from, "plan_id", summary.plan_id);
  const auto kind = evidence_from_name(from.at("kind").get<std::string>());
  if (!kind) throw std::invalid_argument("unknown kind of evidence");
  summary.kind = *kind;
  summary.paced = read_paced(from);
  for (const json& rank : from.at("ranks")) summary.ranks.push_back(rank_from_json(rank));
  for (const json& each : from.value("set_aside", json::array()))
    summary.set_aside.push_back(set_aside_from_json(each));
  for (const json& each : from.value("out_of_memory", json::array()))  // missing in older reports
    summary.out_of_memory.push_back(out_of_memory_from_json(each));
  return summary;
}

}  // namespace

json to_json(const RunSummary& summary) {
  json ranks = json::array();
  for (const RankActual& rank : summary.ranks) ranks.push_back(motley::to_json(rank));
  json set_aside = json::array();
  for (const SetAside& each : summary.set_aside) set_aside.push_back(to_json(each));
  json out_of_memory = json::array();
  for (const OutOfMemory& each : summary.out_of_memory) out_of_memory.push_back(to_json(each));
  const EqualSplit equal = summary.equal_split.value_or(EqualSplit());
  return {{"run_dir", summary.run_dir},
          {"state", summary.state},
          {"steps", summary.steps},
          {"first_loss", summary.first_loss},
          {"final_loss", summary.final_loss},
          {"eval_loss", or_null(summary.eval_loss)},
          {"samples_per_second", or_null(summary.samples_per_second)},
          {"solo_sum_samples_per_second", or_null(summary.solo_sum_samples_per_second)},
          {"efficiency", or_null(summary.efficiency)},
          {"integer_bound_efficiency", or_null(summary.integer_bound_efficiency)},
          {"equal_split_samples_per_second",
           equal.form.empty() ? json() : json(equal.samples_per_second)},
          {"equal_split_form", or_null(equal.form)},
          {"equal_split_not_measured", or_null(equal.not_measured)},
          {"predicted_step_seconds", or_null(summary.predicted_step_seconds)},
          {"actual_step_seconds", or_null(summary.actual_step_seconds)},
          {"restarts", or_null(summary.restarts)},
          {"weights_xxh3", or_null(summary.weights_xxh3)},
          {"plan_id", or_null(summary.plan_id)},
          {"kind", name_of(summary.kind)},
          {"overruns", summary.paced.overruns},
          {"sections", summary.paced.sections},
          {"ranks", std::move(ranks)},
          {"set_aside", std::move(set_aside)},
          {"out_of_memory", std::move(out_of_memory)}};
}

Result<RunSummary> run_summary_from_json(const nlohmann::json& json) {
  try {
    return parse(json);
  } catch (const std::exception& error) {
    return fail(ErrorCode::kCorrupt, std::string("malformed report: ") + error.what());
  }
}

}  // namespace motley
