#include "scheduler/report/fit_table.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/profile.h"
#include "core/spec/names.h"
#include "core/units.h"
#include "scheduler/report/table.h"

namespace motley {
namespace {

/// In the words of those who sell it: "24 GB".
std::string sold_as(Bytes memory) {
  const double gigabytes = static_cast<double>(memory.value()) / 1e9;
  const bool whole =
      gigabytes >= 1 && gigabytes == static_cast<double>(memory.value() / 1000000000);
  return whole ? format_fixed(gigabytes, 0) + " GB" : format_bytes(memory);
}

std::string needs_table(const ModelFit& fit) {
  TextTable table({{"in", Align::kLeft},
                   {"parameters"},
                   {"gradients"},
                   {"optimizer"},
                   {"activations"},
                   {"in all"},
                   {"with headroom"},
                   {"host memory"}});
  for (const FitNeed& need : fit.needs)
    table.add_row({spec_name(need.precision), format_bytes(need.parameters),
                   format_bytes(need.gradients), format_bytes(need.optimizer),
                   format_bytes(need.activations), format_bytes(need.total),
                   format_bytes(need.with_headroom), format_bytes(need.host)});
  return table.to_string();
}

/// `auto` takes the fastest, which is what types name first.
std::string asked_for(const FitType& type, Precision precision) {
  if (precision == type.precisions.front()) return "";
  return ", which the job has to ask for (auto takes the fastest)";
}

/// Others of the same memory that hold it, too.
std::vector<std::string> as_large(const ModelFit& fit) {
  std::vector<std::string> names;
  for (size_t i = 0; i < fit.types.size(); ++i)
    if (i != *fit.device && fit.holds[i] && fit.types[i].memory == fit.types[*fit.device].memory)
      names.push_back(fit.types[i].type);
  return names;
}

Precision precision_held(const ModelFit& fit, size_t type) {
  for (const Precision precision : fit.types[type].precisions)
    if (fit.need(precision).total <= fit.types[type].usable) return precision;
  return fit.least_of(fit.types[type]);
}

std::string device_text(const ModelFit& fit) {
  if (!fit.device) return "smallest device: none; " + nearest_text(fit) + "\n";
  const FitType& type = fit.types[*fit.device];
  const Precision precision = precision_held(fit, *fit.device);
  std::string text = "smallest device: " + type.type + " (" + sold_as(type.memory) + ") in " +
                     spec_name(precision) + asked_for(type, precision) + ", " +
                     format_bytes(type.usable - fit.need(precision).total) + " to spare";
  const std::vector<std::string> others = as_large(fit);
  for (size_t i = 0; i < others.size(); ++i) text += (i == 0 ? "; as large: " : ", ") + others[i];
  return text + "\n";
}

/// "2 RTX3060 (12 GB) + 1 T4 (16 GB)", in the order of stages.
std::string devices_of_mix(const ModelFit& fit, const FitMix& mix) {
  std::vector<std::pair<size_t, int>> counts;
  for (const MixStage& stage : mix.stages) {
    const auto found = std::find_if(counts.begin(), counts.end(),
                                    [&](const auto& count) { return count.first == stage.type; });
    if (found == counts.end())
      counts.emplace_back(stage.type, 1);
    else
      ++found->second;
  }
  std::string text;
  for (const auto& [number, count] : counts) {
    const FitType& type = fit.types[number];
    text += (text.empty() ? "" : " + ") + std::to_string(count) + " " + type.type + " (" +
            sold_as(type.memory) + ")";
  }
  return text;
}

/// "2 T4 (16 GB), a pipeline of layers 0-9 on T4 in fp16 (11 GiB), …", with the end of the line.
std::string pipeline_text(const ModelFit& fit, const FitMix& mix) {
  std::string text = devices_of_mix(fit, mix) + ", a pipeline of layers ";
  for (size_t s = 0; s < mix.stages.size(); ++s) {
    const MixStage& stage = mix.stages[s];
    text += (s == 0 ? "" : ", ") + std::to_string(stage.layers.first) + "-" +
            std::to_string(stage.layers.last) + " on " + fit.types[stage.type].type + " in " +
            spec_name(stage.layers.precision) + " (" + format_bytes(stage.needs) + ")" +
            asked_for(fit.types[stage.type], stage.layers.precision);
  }
  return text + "\n";
}

std::string mix_text(const ModelFit& fit, const char* what, const std::optional<FitMix>& mix,
                     const std::string& not_asked) {
  const std::string title = std::string("smallest mix of ") + what + ": ";
  if (!not_asked.empty()) return title + "not asked: " + not_asked + "\n";
  if (!mix)
    return title + "none of up to " + std::to_string(fit.most_devices) + " devices holds it\n";
  return title + pipeline_text(fit, *mix);
}

constexpr const char *kRecomputing = "blocks computed again", *kInHost = "state in host memory",
                     *kBoth = "blocks computed again and state in host memory";

const char* words_of(const MemoryWays& ways) {
  return ways.count() == 2 ? kBoth : ways.recompute ? kRecomputing : kInHost;
}

/// Nothing where none is smaller than without.
std::string saving_text(const ModelFit& fit, const char* what,
                        const std::optional<SavingMix>& found) {
  if (!found) return "";
  return std::string("smallest mix of ") + what + " with " + words_of(found->ways) + ": " +
         pipeline_text(fit, found->mix);
}

/// Nothing where every device that could be part of it holds the model alone.
std::string sharded_text(const ModelFit& fit) {
  if (!fit.sharded) return "";
  const FitShards& shards = *fit.sharded;
  const FitType& type = fit.types[shards.type];
  return "smallest mix that shares the optimizer's state: sharded over " +
         std::to_string(shards.devices) + " replicas, " + std::to_string(shards.devices) + " " +
         type.type + " (" + sold_as(type.memory) + ") in " + spec_name(shards.precision) + " (" +
         format_bytes(shards.needs) + " each)" + asked_for(type, shards.precision) + "\n";
}

/// Nothing where it is no smaller than a device that needs no such thing.
std::string otherwise_text(const ModelFit& fit, const char* how,
                           const std::optional<FitShards>& found) {
  if (!found) return "";
  const FitType& type = fit.types[found->type];
  if (fit.device && type.memory >= fit.types[*fit.device].memory) return "";
  return std::string("smallest device with ") + how + ": " + type.type + " (" +
         sold_as(type.memory) + ") in " + spec_name(found->precision) + " (" +
         format_bytes(found->needs) + ")" + asked_for(type, found->precision) + "\n";
}

/// "FILE: left out: 2 P100 (why), 1 T4 (another reason)".
std::string left_out_of_fleet(const FleetFit& fleet) {
  std::map<std::pair<std::string, std::string>, int> counts;
  for (const LeftOutDevice& device : fleet.left_out) ++counts[{device.type, device.why}];
  std::string text;
  for (const auto& [what, count] : counts)
    text += (text.empty() ? fleet.source + ": left out: " : ", ") + std::to_string(count) + " " +
            what.first + " (" + what.second + ")";
  return text.empty() ? text : text + "\n";
}

std::string fleet_text(const FleetFit& fleet) {
  const std::string without = left_out_of_fleet(fleet);
  if (!fleet.why_not.empty())
    return fleet.source + ": no plan found: " + fleet.why_not + "\n" + without;
  return fleet.source + ": trains it on " + std::to_string(fleet.devices_used) +
         (fleet.devices_used == 1 ? " device" : " devices") + "; tightest is " + fleet.device +
         ", which needs " + format_bytes(fleet.needs) + " of " + sold_as(fleet.memory) + " (" +
         format_percent(1 - static_cast<double>(fleet.needs.value()) /
                                static_cast<double>(fleet.memory.value())) +
         " free)\n" + without;
}

/// "left out: A, B (why); C (another reason)".
std::string left_out_text(const ModelFit& fit) {
  std::vector<std::pair<std::string, std::string>> by_reason;
  for (const auto& [type, why] : fit.left_out) {
    const auto found = std::find_if(by_reason.begin(), by_reason.end(),
                                    [&](const auto& known) { return known.first == why; });
    if (found == by_reason.end())
      by_reason.emplace_back(why, type);
    else
      found->second += ", " + type;
  }
  std::string text;
  for (const auto& [why, types] : by_reason)
    text += (text.empty() ? "left out: " : "; ") + types + " (" + why + ")";
  return text.empty() ? text : text + "\n";
}

nlohmann::json words_or_null(const std::string& words) {
  return words.empty() ? nlohmann::json() : nlohmann::json(words);
}

nlohmann::json json_of_need(const FitNeed& need) {
  return {{"precision", spec_name(need.precision)},
          {"parameter_bytes", need.parameters.value()},
          {"gradient_bytes", need.gradients.value()},
          {"optimizer_bytes", need.optimizer.value()},
          {"activation_bytes", need.activations.value()},
          {"total_bytes", need.total.value()},
          {"with_headroom_bytes", need.with_headroom.value()},
          {"host_total_bytes", need.host.value()}};
}

nlohmann::json json_of_type(const ModelFit& fit, size_t number) {
  const FitType& type = fit.types[number];
  const Precision precision = precision_held(fit, number);
  return {{"type", type.type},
          {"memory", type.memory.value()},
          {"holds", static_cast<bool>(fit.holds[number])},
          {"precision", spec_name(precision)},
          {"needs", fit.need(precision).total.value()},
          {"to_spare", (type.usable - fit.need(precision).total).value()}};
}

nlohmann::json json_of_mix(const ModelFit& fit, const std::optional<FitMix>& mix) {
  if (!mix) return nullptr;
  nlohmann::json stages = nlohmann::json::array();
  for (const MixStage& stage : mix->stages)
    stages.push_back({{"type", fit.types[stage.type].type},
                      {"memory", fit.types[stage.type].memory.value()},
                      {"first_layer", stage.layers.first},
                      {"last_layer", stage.layers.last},
                      {"precision", spec_name(stage.layers.precision)},
                      {"needs", stage.needs.value()}});
  return {{"devices", mix->stages.size()}, {"memory", mix->memory.value()}, {"stages", stages}};
}

nlohmann::json json_of_saving(const ModelFit& fit, const std::optional<SavingMix>& found) {
  if (!found) return nullptr;
  nlohmann::json json = json_of_mix(fit, found->mix);
  json["recompute"] = found->ways.recompute;
  json["host_optimizer"] = found->ways.state.host;
  return json;
}

nlohmann::json json_of_shards(const ModelFit& fit, const std::optional<FitShards>& found) {
  if (!found) return nullptr;
  const FitShards& shards = *found;
  return {{"type", fit.types[shards.type].type},
          {"devices", shards.devices},
          {"memory", shards.devices * fit.types[shards.type].memory.value()},
          {"precision", spec_name(shards.precision)},
          {"needs", shards.needs.value()}};
}

nlohmann::json json_of_fleet(const FleetFit& fleet) {
  const bool trains = fleet.why_not.empty();
  nlohmann::json tightest;
  if (trains)
    tightest = {
        {"device", fleet.device}, {"needs", fleet.needs.value()}, {"memory", fleet.memory.value()}};
  nlohmann::json left_out = nlohmann::json::array();
  for (const LeftOutDevice& device : fleet.left_out)
    left_out.push_back({{"device", device.device}, {"type", device.type}, {"why", device.why}});
  return {{"source", fleet.source},
          {"trains", trains},
          {"left_out", left_out},
          {"why_not", words_or_null(fleet.why_not)},
          {"devices_used", fleet.devices_used},
          {"tightest", tightest}};
}

}  // namespace

const FitNeed& ModelFit::need(Precision precision) const {
  const auto found = std::find_if(needs.begin(), needs.end(),
                                  [&](const FitNeed& need) { return need.precision == precision; });
  MOTLEY_CHECK(found != needs.end(), "a precision in which nothing was counted");
  return *found;
}

Precision ModelFit::least_of(const FitType& type) const {
  return *std::min_element(type.precisions.begin(), type.precisions.end(),
                           [&](Precision a, Precision b) { return need(a).total < need(b).total; });
}

std::string nearest_text(const ModelFit& fit) {
  const auto lacks = [&](const FitType& type) {
    return fit.need(fit.least_of(type)).total - type.usable;
  };
  const auto nearest =
      std::min_element(fit.types.begin(), fit.types.end(),
                       [&](const FitType& a, const FitType& b) { return lacks(a) < lacks(b); });
  return "the nearest, " + nearest->type + " (" + sold_as(nearest->memory) + "), lacks " +
         format_bytes(lacks(*nearest)) + " of " +
         format_bytes(fit.need(fit.least_of(*nearest)).total) + " in " +
         spec_name(fit.least_of(*nearest));
}

std::string fit_text(const ModelFit& fit) {
  std::string text =
      fit.job + ": " + std::to_string(fit.parameters) +
      " parameters; whole on one GPU, micro-batches of " + std::to_string(fit.micro_batch) + " (" +
      name_of(Evidence::kSimulated) + ": counted by the worker)\n" + needs_table(fit) +
      device_text(fit) + otherwise_text(fit, kRecomputing, fit.recomputing) +
      otherwise_text(fit, kInHost, fit.in_host) + otherwise_text(fit, kBoth, fit.saving_both) +
      mix_text(fit, "one type", fit.like, fit.like_not_asked) +
      saving_text(fit, "one type", fit.like_saving) +
      mix_text(fit, "two types", fit.unlike, fit.unlike_not_asked) +
      saving_text(fit, "two types", fit.unlike_saving) + sharded_text(fit);
  if (fit.fleet) text += fleet_text(*fit.fleet);
  return text + left_out_text(fit) + "devices of " + fit.catalog + ", each with " +
         format_percent(fit.headroom) +
         " of its memory left free; the smallest mix is that of fewest devices, then least memory; "
         "nothing of it was measured\n";
}

nlohmann::json fit_json(const ModelFit& fit) {
  nlohmann::json needs = nlohmann::json::array(), devices = nlohmann::json::array(),
                 left_out = nlohmann::json::array();
  for (const auto& [type, why] : fit.left_out) left_out.push_back({{"type", type}, {"why", why}});
  for (const FitNeed& need : fit.needs) needs.push_back(json_of_need(need));
  for (size_t i = 0; i < fit.types.size(); ++i) devices.push_back(json_of_type(fit, i));
  return {{"version", 1},
          {"kind", name_of(Evidence::kSimulated)},
          {"job", fit.job},
          {"catalog", fit.catalog},
          {"parameters", fit.parameters},
          {"micro_batch", fit.micro_batch},
          {"headroom", fit.headroom},
          {"most_devices", fit.most_devices},
          {"needs", needs},
          {"devices", devices},
          {"left_out", left_out},
          {"smallest_device", fit.device ? json_of_type(fit, *fit.device) : nlohmann::json()},
          {"smallest_device_with",
           {{"recompute", json_of_shards(fit, fit.recomputing)},
            {"host_optimizer", json_of_shards(fit, fit.in_host)},
            {"both", json_of_shards(fit, fit.saving_both)}}},
          {"smallest_mix",
           {{"one_type", json_of_mix(fit, fit.like)},
            {"two_types", json_of_mix(fit, fit.unlike)},
            {"sharded_state", json_of_shards(fit, fit.sharded)}}},
          {"smallest_mix_with",
           {{"one_type", json_of_saving(fit, fit.like_saving)},
            {"two_types", json_of_saving(fit, fit.unlike_saving)}}},
          {"not_asked",
           {{"one_type", words_or_null(fit.like_not_asked)},
            {"two_types", words_or_null(fit.unlike_not_asked)}}},
          {"fleet", fit.fleet ? json_of_fleet(*fit.fleet) : nlohmann::json()}};
}

}  // namespace motley
