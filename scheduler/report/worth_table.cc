#include "scheduler/report/worth_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/or_null.h"
#include "scheduler/report/table.h"

namespace motley {
namespace {

/// "2 fast + 1 of 2 slow".
std::string devices_of(const Mix& mix) {
  std::string text;
  for (const TypeShare& share : mix.types) {
    if (!text.empty()) text += " + ";
    if (mix.has_plan() && share.used < share.devices) text += std::to_string(share.used) + " of ";
    text += std::to_string(share.devices) + " " + share.type;
  }
  return text;
}

bool any_cost(const Worth& worth) {
  return std::any_of(worth.mixes.begin(), worth.mixes.end(),
                     [](const Mix& mix) { return mix.cost_per_hour.has_value(); });
}

std::string cell(const std::optional<double>& value) {
  return value ? format_fixed(*value, 2) : "-";
}

/// An error less its remedy.
std::string short_reason(const std::string& why) { return why.substr(0, why.find("; ")); }

std::string note_on(const Mix& mix, const Mix& quickest) {
  if (!mix.has_plan()) return short_reason(mix.why_not);
  if (!mix.better_without.empty()) return "quicker without the " + listed_types(mix.better_without);
  if (&mix == &quickest || !as_quick(mix, quickest)) return "";
  return "as quick as the first, as far as predictions can tell";
}

std::vector<std::string> row_of(const Mix& mix, const Mix& quickest, bool costs) {
  std::vector<std::string> cells{devices_of(mix)};
  if (mix.has_plan()) {
    cells.push_back(format_duration(mix.step_seconds));
    cells.push_back(format_fixed(mix.samples_per_second, 1));
    cells.push_back(mix.solo_sum_samples_per_second > 0
                        ? format_percent(mix.samples_per_second / mix.solo_sum_samples_per_second)
                        : "-");
  } else {
    cells.insert(cells.end(), {"-", "-", "-"});
  }
  if (costs) {
    cells.push_back(cell(mix.cost_per_hour));
    cells.push_back(cell(mix.cost_per_million_samples()));
  }
  cells.push_back(note_on(mix, quickest));
  return cells;
}

const char* name_of_advice(Advice advice) {
  switch (advice) {
    case Advice::kMixAll:
      return "mix_all";
    case Advice::kLeaveOut:
      return "leave_out";
    case Advice::kOneType:
      return "one_type";
    case Advice::kNothingToMix:
      break;
  }
  return "nothing_to_mix";
}

std::string sets_planned(const Worth& worth) {
  if (worth.every_set) return "";
  return std::to_string(worth.types.size()) +
         " types: planned were all together, all but one, each alone and those that the quickest "
         "plan uses, not every set of them\n";
}

/// Null where a mix has no plan, or the figure is not known.
nlohmann::json figure(const Mix& mix, double value) {
  return mix.has_plan() && value > 0 ? nlohmann::json(value) : nlohmann::json();
}

nlohmann::json json_of(const Mix& mix) {
  nlohmann::json types = nlohmann::json::array();
  for (const TypeShare& share : mix.types)
    types.push_back({{"type", share.type}, {"devices", share.devices}, {"used", share.used}});
  const bool has_sum = mix.has_plan() && mix.solo_sum_samples_per_second > 0;
  return {{"types", types},
          {"step_seconds", figure(mix, mix.step_seconds)},
          {"samples_per_second", figure(mix, mix.samples_per_second)},
          {"solo_sum_samples_per_second", figure(mix, mix.solo_sum_samples_per_second)},
          {"efficiency",
           has_sum ? nlohmann::json(mix.samples_per_second / mix.solo_sum_samples_per_second)
                   : nlohmann::json()},
          {"uncertainty", mix.has_plan() ? nlohmann::json(mix.uncertainty) : nlohmann::json()},
          {"cost_per_hour", ::motley::or_null(mix.cost_per_hour)},
          {"cost_per_million_samples", ::motley::or_null(mix.cost_per_million_samples())},
          {"better_without", mix.better_without},
          {"why_not", mix.has_plan() ? nlohmann::json() : nlohmann::json(mix.why_not)}};
}

}  // namespace

Evidence weakest_evidence(const Profile& profile) {
  Evidence weakest = Evidence::kMeasured;
  for (const DeviceProfile& device : profile.devices)
    weakest = std::min(weakest, device.evidence);  // declared weakest first
  return weakest;
}

std::string worth_text(const Worth& worth, Evidence evidence) {
  const bool costs = any_cost(worth);
  std::vector<TextTable::Column> columns{{"devices", Align::kLeft},
                                         {"step", Align::kRight},
                                         {"samples/s", Align::kRight},
                                         {"of the solo sum", Align::kRight}};
  if (costs) {
    columns.push_back({"an hour", Align::kRight});
    columns.push_back({"a million samples", Align::kRight});
  }
  columns.push_back({"", Align::kLeft});
  TextTable table(columns);
  for (const Mix& mix : worth.mixes) table.add_row(row_of(mix, worth.mixes.front(), costs));
  return std::string("Mixes (from ") + name_of(evidence) + " profiles)\n" + table.to_string() +
         sets_planned(worth) + "verdict: " + verdict(worth) + "\n";
}

nlohmann::json worth_json(const Worth& worth, Evidence evidence) {
  nlohmann::json mixes = nlohmann::json::array();
  for (const Mix& mix : worth.mixes) mixes.push_back(json_of(mix));
  return {{"version", 1},
          {"kind", name_of(evidence)},
          {"every_set", worth.every_set},
          {"mixes", mixes},
          {"advice", name_of_advice(worth.advice)},
          {"use", worth.best().names()},
          {"leave_out", worth.left_out()},
          {"verdict", verdict(worth)}};
}

}  // namespace motley
