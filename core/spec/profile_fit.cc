#include "core/spec/profile_fit.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/spec/profile_key.h"

namespace motley {
namespace {

using nlohmann::json;

/// "model.width" of "/model/width".
std::string key_of(const std::string& pointer) {
  std::string key = pointer.empty() ? "all of it" : pointer.substr(1);
  std::replace(key.begin(), key.end(), '/', '.');
  return key;
}

/// "model.width is 32 in the profile, 64 in the job": the first difference.
std::string job_difference(const std::string& measured, const JobSpec& job) {
  const json before = json::parse(measured, nullptr, false);
  const json now = json::parse(profile_job(job));
  if (!before.is_object())
    return "it is of another model, precision, numerics or optimizer than the job";
  const json flat = now.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    const json::json_pointer place(pointer);
    const json there = before.contains(place) ? before.at(place) : json();
    if (there == value) continue;
    return key_of(pointer) + " is " + there.dump() + " in the profile, " + value.dump() +
           " in the job";
  }
  const json flat_before = before.flatten();
  for (const auto& [pointer, value] : flat_before.items())
    if (!now.contains(json::json_pointer(pointer)))
      return key_of(pointer) + " is " + value.dump() + " in the profile, and not in the job";
  return "it is of another job";
}

std::string device_difference(const DeviceProfile& measured, const FleetSpec& fleet,
                              const DeviceSpec& device, const MachineOf& machine_of) {
  if (json::parse(measured.identity, nullptr, false).is_object())
    return identity_difference(measured.identity,
                               device_identity(fleet, device, machine_of(device)));
  if (measured.type == device.type) return "";
  return "type is " + measured.type + " in the profile, " + device.type + " here";
}

}  // namespace

std::optional<std::string> misfit(const Profile& profile, const JobSpec& job,
                                  const FleetSpec& fleet, const MachineOf& machine_of) {
  if (profile.job_key != profile_job_key(job)) return job_difference(profile.job, job);
  for (const DeviceSpec& device : fleet.devices)
    if (profile.find(device.id) == nullptr)
      return "it lacks " + device.id + " (" + device.type + ")";
  for (const DeviceSpec& device : fleet.devices) {
    const std::string difference =
        device_difference(*profile.find(device.id), fleet, device, machine_of);
    if (!difference.empty()) return device.id + ": " + difference;
  }
  return std::nullopt;
}

int measured_micro_batches(const Profile& profile) {
  int largest = 0;
  for (const DeviceProfile& device : profile.devices) {
    const int its = device.memory.empty() ? 0 : device.memory.back().micro_batch;
    largest = &device == &profile.devices.front() ? its : std::min(largest, its);
  }
  return largest;
}

}  // namespace motley
