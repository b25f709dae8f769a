#include "scheduler/run/profile_cache.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/debug_env.h"
#include "core/file_system.h"
#include "core/hash.h"
#include "core/json_file.h"
#include "core/spec/json.h"
#include "core/spec/profile_key.h"
#include "scheduler/launch/this_host.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr Bytes kLargestWorker{1 << 30};

/// Of the first processor; empty where the system does not say.
std::string own_cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0) return line;
  return "";
}

/// How many devices share a host decides what each of them gets: part of every key.
json neighbours(const FleetSpec& fleet, const std::string& host) {
  json kinds = json::array();
  for (const DeviceSpec& device : fleet.devices)
    if (device.host == host) kinds.push_back(device.threads);
  return kinds;
}

json keys_of(const FleetSpec& fleet) {
  json keys = json::object();
  for (const DeviceSpec& device : fleet.devices) keys[device.id] = device_key(fleet, device);
  return keys;
}

bool covers(const json& stored, const json& wanted) {
  return stored.is_object() &&
         std::all_of(wanted.items().begin(), wanted.items().end(), [&](const auto& entry) {
           const auto found = stored.find(entry.key());
           return found != stored.end() && *found == entry.value();
         });
}

Profile only_devices_of(const FleetSpec& fleet, Profile profile) {
  std::vector<DeviceProfile> kept;
  for (const DeviceSpec& device : fleet.devices)
    if (const DeviceProfile* found = profile.find(device.id)) kept.push_back(*found);
  profile.devices = std::move(kept);
  const std::vector<std::string> hosts = fleet.hosts();
  const auto known = [&](const std::string& host) {
    return std::find(hosts.begin(), hosts.end(), host) != hosts.end();
  };
  std::erase_if(profile.links, [&](const LinkProfile& link) {
    return !known(link.between[0]) || !known(link.between[1]);
  });
  return profile;
}

}  // namespace

std::string device_key(const FleetSpec& fleet, const DeviceSpec& device) {
  json key = to_json(device);
  key.erase("price_per_hour");
  key["clock"] = fleet.clock == PaceClock::kVirtual ? "virtual" : "sleep";
  key["pace_flops"] = fleet.pace_flops;
  // A paced device is what its pace says; others share their host with their neighbours.
  if (!device.paced) {
    key["neighbours"] = neighbours(fleet, device.host);
    key["cpu"] = is_this_host(device.host) ? own_cpu_model() : "";
    key["machine"] = is_this_host(device.host) ? own_host_name() : device.host;
  }
  return key.dump();
}

std::optional<Profile> ProfileCache::find(const JobSpec& job, const FleetSpec& fleet) const {
  FileSystem& fs = real_file_system();
  const auto names = fs.list(directory_);
  if (!names) return std::nullopt;
  const json wanted = keys_of(fleet);
  const std::string prefix = profile_job_key(job) + "-" + worker_hash_ + "-";
  for (const std::string& name : *names) {
    if (name.rfind(prefix, 0) != 0) continue;
    const auto entry = read_json_file(fs, directory_ + "/" + name, ErrorCode::kCorrupt);
    if (!entry || !entry->is_object() || !covers(entry->value("devices", json()), wanted)) continue;
    auto profile = profile_from_json(entry->value("profile", json()));
    if (profile) return only_devices_of(fleet, std::move(*profile));
  }
  return std::nullopt;
}

Result<Unit> ProfileCache::store(const JobSpec& job, const FleetSpec& fleet,
                                 const Profile& profile) const {
  FileSystem& fs = real_file_system();
  MOTLEY_TRY_VOID(fs.make_directories(directory_));
  const json devices = keys_of(fleet);
  const std::string text = devices.dump();
  const std::string name = profile_job_key(job) + "-" + worker_hash_ + "-" +
                           xxh3_64_hex(text.data(), text.size()) + ".json";
  const json entry = {
      {"version", 1}, {"job", job.name}, {"devices", devices}, {"profile", to_json(profile)}};
  return write_text_durably(fs, directory_ + "/" + name, entry.dump(1) + "\n");
}

std::vector<ProfileCache::Entry> ProfileCache::entries() const {
  FileSystem& fs = real_file_system();
  std::vector<Entry> found;
  const auto names = fs.list(directory_);
  if (!names) return found;
  for (const std::string& name : *names) {
    const auto entry = read_json_file(fs, directory_ + "/" + name, ErrorCode::kCorrupt);
    if (!entry || !entry->is_object()) continue;
    auto profile = profile_from_json(entry->value("profile", json()));
    if (profile) found.push_back({name, entry->value("job", ""), std::move(*profile)});
  }
  return found;
}

Result<ProfileCache> user_profile_cache(const std::string& worker) {
  MOTLEY_TRY(const std::string program, read_text(real_file_system(), worker, kLargestWorker));
  return ProfileCache(cache_directory() + "/profiles", xxh3_64_hex(program.data(), program.size()));
}

}  // namespace motley
