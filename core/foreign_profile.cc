#include "core/foreign_profile.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "core/json_fields.h"
#include "core/json_file.h"
#include "core/json_place.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr Bytes kLargestProfile{256 << 20};
constexpr int kMostDegree = 1 << 20;
constexpr double kMostCount = 1e18;
constexpr double kLeastBandwidth = 1e-9;  // where a polynomial leaves its range

/// {"1": …, "2": …}; or one number, which is of the whole layer.
void read_by_degree(JsonFields& fields, const char* key, std::map<int, double>* out) {
  const json* sizes = fields.member(key);
  if (!sizes) return;
  if (sizes->is_number()) {
    fields.read_between(key, (*out)[1], 0, kMostCount);
    return;
  }
  if (!sizes->is_object()) return fields.fault(key, "expected sizes by tensor degree");
  for (const auto& [name, value] : sizes->items()) {
    int degree = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), degree);
    if (error != std::errc() || end != name.data() + name.size() || degree < 1 ||
        degree > kMostDegree)
      return fields.fault(key, "'" + name + "' is no tensor degree");
    if (!value.is_number() || !(value.get<double>() >= 0) || value.get<double>() > kMostCount)
      return fields.fault(key, "the size at degree " + name + " must be a number, 0 at least");
    (*out)[degree] = value.get<double>();
  }
  if (!out->contains(1)) fields.fault(key, "the size at degree 1 is missing");
}

void read_layer(JsonFields& fields, ForeignProfile* profile) {
  ForeignLayer layer;
  read_by_degree(fields, "parameters", &layer.parameters);
  read_by_degree(fields, "activation_bytes_per_sample", &layer.activation_bytes_per_sample);
  fields.read_between("output_bytes_per_sample", layer.output_bytes_per_sample, 0, kMostCount)
      .leave_notes();
  profile->layers.push_back(std::move(layer));
}

void read_seconds(JsonFields& fields, const char* key, size_t layers, std::vector<double>* out) {
  fields.read(key, *out);
  if (out->size() != layers)
    return fields.fault(key, "must have one number for each of " + std::to_string(layers) +
                                 " layers, and has " + std::to_string(out->size()));
  for (const double seconds : *out)
    if (!(seconds >= 0 && seconds <= kMostSeconds))
      return fields.fault(key, seconds < 0 ? "seconds must be 0 at least" : "takes too long");
}

void read_device(JsonFields& fields, size_t layers, ForeignDevice* device) {
  fields.read_between("memory_bytes", device->memory, 1, INT64_MAX / 4).leave_notes();
  if (fields.has("price_per_hour"))
    fields.read_between("price_per_hour", device->price_per_hour, 0, kMostCount);
  std::set<std::pair<int, int>> points;
  fields.each("profiles", [&](JsonFields& each) {
    ForeignTimes times;
    each.read_between("micro_batch", times.micro_batch, 1, 1 << 30).leave_notes();
    if (each.has("tensor")) each.read_between("tensor", times.tensor, 1, kMostDegree);
    if (!points.emplace(times.micro_batch, times.tensor).second)
      each.fault(nullptr, "micro-batch " + std::to_string(times.micro_batch) + " at tensor " +
                              std::to_string(times.tensor) + " is there twice");
    read_seconds(each, "forward_seconds", layers, &times.forward_seconds);
    read_seconds(each, "backward_seconds", layers, &times.backward_seconds);
    read_seconds(each, "update_seconds", layers, &times.update_seconds);
    const auto is_none = [](double seconds) { return seconds == 0; };
    if (std::all_of(times.forward_seconds.begin(), times.forward_seconds.end(), is_none) &&
        std::all_of(times.backward_seconds.begin(), times.backward_seconds.end(), is_none))
      each.fault("forward_seconds", "nothing takes any time, forward and backward");
    device->profiles.push_back(std::move(times));
  });
}

void read_table(JsonFields& fields, ForeignLink::Table* table) {
  const json* rows = fields.member("seconds_by_bytes");
  if (!rows) return;
  for (const json& row : rows->is_array() ? *rows : json::array()) {
    if (!row.is_array() || row.size() != 2 || !row[0].is_number() || !row[1].is_number() ||
        !(row[0].get<double>() > 0) || !(row[1].get<double>() >= 0) ||
        row[1].get<double>() > kMostSeconds)
      return fields.fault("seconds_by_bytes", "expected pairs of bytes and seconds");
    const auto [at, is_new] = table->emplace(row[0].get<double>(), row[1].get<double>());
    if (!is_new && at->second != row[1].get<double>())
      return fields.fault("seconds_by_bytes", row[0].dump() + " bytes have two times");
  }
  if (table->empty()) fields.fault("seconds_by_bytes", "expected pairs of bytes and seconds");
}

/// One of three.
void read_speed(JsonFields& fields, ForeignLink* link) {
  int ways = 0;
  for (const auto& keys : {std::pair{"bandwidth_GBps", "bandwidth_GBps"},
                           {"seconds_by_bytes", "seconds_by_bytes"},
                           {"bytes_per_second", "latency_seconds"}})
    ways += fields.has(keys.first) || fields.has(keys.second) ? 1 : 0;
  if (ways != 1)
    return fields.fault(nullptr, std::string(ways == 0 ? "gives no speed" : "gives two speeds") +
                                     ": one of 'bandwidth_GBps', 'seconds_by_bytes' and "
                                     "'bytes_per_second' is needed");
  if (fields.has("bandwidth_GBps")) {
    fields.read("bandwidth_GBps", link->speed.emplace<ForeignLink::Polynomial>());
    if (std::get<ForeignLink::Polynomial>(link->speed).empty())
      fields.fault("bandwidth_GBps", "has no coefficients");
  } else if (fields.has("seconds_by_bytes")) {
    read_table(fields, &link->speed.emplace<ForeignLink::Table>());
  } else {
    auto& line = link->speed.emplace<ForeignLine>();
    if (fields.has("latency_seconds"))
      fields.read_between("latency_seconds", line.latency_seconds, 0, kMostSeconds);
    fields.read_between("bytes_per_second", line.bytes_per_second, 1e-3, kMostCount);
  }
}

void read_link(JsonFields& fields, ForeignProfile* profile) {
  ForeignLink link;
  fields.read("from", link.from).read("to", link.to).leave_notes();
  for (const char* key : {"from", "to"})
    if (!profile->devices.contains(key[0] == 'f' ? link.from : link.to))
      fields.fault(key, "no device of this type is in \"devices\"");
  if (fields.has("from_devices"))
    fields.read_between("from_devices", link.from_devices, 1, kMostDegree);
  if (fields.has("to_devices")) fields.read_between("to_devices", link.to_devices, 1, kMostDegree);
  read_speed(fields, &link);
  profile->links.push_back(std::move(link));
}

void read_devices(JsonFields& fields, ForeignProfile* profile) {
  fields.object("devices", [&](JsonFields& devices) {
    const json& all = devices.whole();
    for (const auto& [type, device] : all.items())
      devices.object(type.c_str(), [&, name = type](JsonFields& each) {
        read_device(each, profile->layers.size(), &profile->devices[name]);
      });
    if (all.empty()) devices.fault(nullptr, "names no type of device");
  });
}

std::string numbered(size_t link) { return "/links/" + std::to_string(link); }

Result<Unit> check_no_contradiction(const std::vector<ForeignLink>& links) {
  std::map<std::tuple<std::string, int, std::string, int>, size_t> known;
  for (size_t i = 0; i < links.size(); ++i) {
    const ForeignLink& link = links[i];
    const auto [same, is_new] =
        known.emplace(std::tuple{link.from, link.from_devices, link.to, link.to_devices}, i);
    if (!is_new && links[same->second].speed != link.speed)
      return invalid_at(numbered(i), "is of the same devices as " + numbered(same->second) +
                                         ", and has another speed");
  }
  return Unit{};
}

/// Of what stages send each other, at micro-batches that both were measured at. What sums of
/// gradients send depends on the plan.
Result<Unit> check_bandwidths(const ForeignProfile& profile) {
  std::set<double> outputs;
  for (size_t layer = 0; layer + 1 < profile.layers.size(); ++layer)
    outputs.insert(profile.layers[layer].output_bytes_per_sample);
  std::map<std::pair<std::string, int>, std::set<int>> measured;  // micro-batches
  for (const auto& [type, device] : profile.devices)
    for (const ForeignTimes& times : device.profiles)
      measured[{type, times.tensor}].insert(times.micro_batch);
  for (size_t i = 0; i < profile.links.size(); ++i) {
    const ForeignLink& link = profile.links[i];
    if (!std::holds_alternative<ForeignLink::Polynomial>(link.speed)) continue;
    const std::set<int>& receives = measured[{link.to, link.to_devices}];
    for (const int micro_batch : measured[{link.from, link.from_devices}])
      for (const double output : outputs)
        if (receives.contains(micro_batch) && !link.carries(output * micro_batch))
          return invalid_at(numbered(i) + "/bandwidth_GBps",
                            "is not above 0 for messages of " + json(output * micro_batch).dump() +
                                " bytes, which stages send at micro-batch " +
                                std::to_string(micro_batch));
  }
  return Unit{};
}

Result<ForeignProfile> read(const json& document) {
  ForeignProfile profile;
  JsonFields fields(document);
  fields.read_version(1).leave_notes();
  fields.read_if("name", profile.name);
  if (fields.has("global_batch"))
    fields.read_between("global_batch", profile.global_batch, 1, 1 << 30);
  fields.object("model", [&](JsonFields& model) {
    model
        .read_between("optimizer_bytes_per_parameter", profile.optimizer_bytes_per_parameter, 0,
                      1e6)
        .leave_notes();
    if (model.has("gradient_bytes_per_parameter"))
      model.read_between("gradient_bytes_per_parameter", profile.gradient_bytes_per_parameter, 0,
                         1e6);
    model.each("layers", [&](JsonFields& each) { read_layer(each, &profile); });
    if (profile.layers.empty()) model.fault("layers", "has no layer");
  });
  read_devices(fields, &profile);
  if (fields.has("links"))
    fields.each("links", [&](JsonFields& each) { read_link(each, &profile); });
  MOTLEY_TRY_VOID(fields.done());
  MOTLEY_TRY_VOID(check_no_contradiction(profile.links));
  MOTLEY_TRY_VOID(check_bandwidths(profile));
  return profile;
}

/// In 1e9 bytes a second.
double bandwidth_of(const ForeignLink::Polynomial& powers, double bytes) {
  const double x = std::log2(bytes / 1e6);
  double bandwidth = 0;
  for (const double coefficient : powers) bandwidth = bandwidth * x + coefficient;
  return bandwidth;
}

}  // namespace

const ForeignTimes* ForeignDevice::find(int micro_batch, int tensor) const {
  const auto found = std::find_if(profiles.begin(), profiles.end(), [&](const ForeignTimes& one) {
    return one.micro_batch == micro_batch && one.tensor == tensor;
  });
  return found == profiles.end() ? nullptr : &*found;
}

double ForeignLink::seconds(double bytes) const {
  if (!(bytes > 0)) return 0;
  if (const auto* line = std::get_if<ForeignLine>(&speed))
    return line->latency_seconds + bytes / line->bytes_per_second;
  if (const auto* powers = std::get_if<Polynomial>(&speed))
    return bytes / 1e9 / std::max(bandwidth_of(*powers, bytes), kLeastBandwidth);
  const Table& table = std::get<Table>(speed);
  const auto above = table.lower_bound(bytes);
  if (above == table.begin()) return above->second;
  const auto below = std::prev(above);
  if (above == table.end()) return below->second * bytes / below->first;
  const double part = (bytes - below->first) / (above->first - below->first);
  return below->second + part * (above->second - below->second);
}

bool ForeignLink::carries(double bytes) const {
  const auto* powers = std::get_if<Polynomial>(&speed);
  return !powers || !(bytes > 0) || bandwidth_of(*powers, bytes) > 0;
}

bool ForeignLink::favours_large(double least_bytes, double most_bytes) const {
  constexpr int kSizes = 200;
  std::vector<double> sizes = {least_bytes, most_bytes};
  if (const auto* table = std::get_if<Table>(&speed)) {
    for (const auto& [bytes, at] : *table)
      if (bytes > least_bytes && bytes < most_bytes) sizes.push_back(bytes);
  } else {
    for (int i = 1; i < kSizes; ++i)
      sizes.push_back(least_bytes * std::pow(most_bytes / least_bytes, 1.0 * i / kSizes));
  }
  std::sort(sizes.begin(), sizes.end());
  double before = std::numeric_limits<double>::infinity();
  for (const double bytes : sizes) {
    const double of_a_byte = seconds(bytes) / bytes;
    if (of_a_byte > before * (1 + 1e-12)) return false;
    before = of_a_byte;
  }
  return true;
}

const ForeignLink* ForeignProfile::link(const std::string& from, int from_devices,
                                        const std::string& to, int to_devices) const {
  const ForeignLink* backwards = nullptr;
  for (const ForeignLink& link : links) {
    if (link.from == from && link.to == to && link.from_devices == from_devices &&
        link.to_devices == to_devices)
      return &link;
    if (link.from == to && link.to == from && link.from_devices == to_devices &&
        link.to_devices == from_devices)
      backwards = &link;
  }
  return backwards;
}

Result<ForeignProfile> read_foreign_profile(FileSystem& fs, const std::string& path) {
  MOTLEY_TRY(const std::string text, read_text(fs, path, kLargestProfile));
  MOTLEY_TRY(const json document, parse_json_file(text, path, ErrorCode::kInvalidSpec));
  Result<ForeignProfile> profile = read(document);
  if (!profile) return fail(placed_in(profile.error(), text, path));
  return profile;
}

}  // namespace motley
