#include "core/spec/device_identity.h"

#include <unistd.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/spec/json.h"
#include "core/spec/names.h"

namespace motley {
namespace {

using nlohmann::json;

/// Empty where the system does not say.
std::string first_processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

/// Who else computes on a host decides what each CPU there gets.
json threads_on(const FleetSpec& fleet, const std::string& host) {
  json threads = json::array();
  for (const DeviceSpec& device : fleet.devices)
    if (device.host == host && device.kind != DeviceKind::kCuda) threads.push_back(device.threads);
  return threads;
}

/// Who else computes on a GPU takes from its memory's bandwidth; which part a device has is alike.
json shares_beside(const FleetSpec& fleet, const DeviceSpec& device) {
  json shares = json::array();
  for (const DeviceSpec& other : fleet.devices)
    if (other.share && takes_same_memory(device, other)) shares.push_back(other.share->sms);
  return shares;
}

std::string shown(const json& value) {
  if (value.is_null()) return "not given";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

Machine this_machine() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return {name.data(), first_processor()};
}

std::string device_identity(const FleetSpec& fleet, const DeviceSpec& device,
                            const Machine& machine) {
  json identity = to_json(device);
  for (const char* no_matter : {"id", "host", "price_per_hour"}) identity.erase(no_matter);
  identity["clock"] = spec_name(fleet.clock);
  if (device.share) {
    identity["share"].erase("first");
    identity["shares_on_gpu"] = shares_beside(fleet, device);
  }
  if (device.paced) identity["pace_flops"] = fleet.pace_flops;
  if (device.paced && fleet.clock == PaceClock::kVirtual) return identity.dump();
  if (!machine.name.empty()) identity["machine"] = machine.name;
  if (!machine.processor.empty()) identity["processor"] = machine.processor;
  if (!device.paced && device.kind != DeviceKind::kCuda)
    identity["threads_on_host"] = threads_on(fleet, device.host);
  return identity.dump();
}

Evidence evidence_of(const DeviceSpec& device) {
  if (device.paced) return Evidence::kPaced;
  return device.share ? Evidence::kThrottled : Evidence::kMeasured;
}

std::string identity_difference(const std::string& measured, const std::string& wanted) {
  const json before = json::parse(measured, nullptr, false);
  const json now = json::parse(wanted, nullptr, false);
  if (!before.is_object() || !now.is_object()) return measured == wanted ? "" : "it is not known";
  for (const auto& [key, value] : now.items()) {
    const json there = before.value(key, json());
    if (there != value)
      return key + " is " + shown(there) + " in the profile, " + shown(value) + " here";
  }
  return "";
}

}  // namespace motley
