#include "scheduler/run/profile_cache.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/debug_env.h"
#include "core/file_system.h"
#include "core/hash.h"
#include "core/json_fields.h"
#include "core/json_file.h"
#include "core/spec/device_identity.h"
#include "core/spec/profile_fit.h"
#include "core/spec/profile_key.h"
#include "core/user_directories.h"
#include "scheduler/launch/command.h"
#include "scheduler/launch/this_host.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr int kEntryVersion = 2;
constexpr Nanos kWorkerLimit{int64_t{60} * 1'000'000'000};

/// Of other hosts nothing is known here but what the fleet says.
Machine known_machine(const DeviceSpec& device) {
  static const Machine own = this_machine();
  return is_this_host(device.host) ? own : Machine{};
}

Result<ProfileCache::Entry> read_entry(const std::string& directory, const std::string& name) {
  ProfileCache::Entry entry;
  entry.file = name;
  MOTLEY_TRY(const json document,
             read_json_file(real_file_system(), directory + "/" + name, ErrorCode::kCorrupt));
  JsonFields fields(document);
  fields.read_version(kEntryVersion).read("job", entry.job).read("measured_at", entry.measured_at);
  const json* profile = fields.member("profile");
  MOTLEY_TRY_VOID(fields.done());
  MOTLEY_TRY(entry.profile, profile_from_json(*profile));
  return entry;
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

/// Whether the entry could serve for this device alone.
bool holds(const Profile& profile, const FleetSpec& fleet, const DeviceSpec& device) {
  const DeviceProfile* measured = profile.find(device.id);
  return measured != nullptr &&
         identity_difference(measured->identity,
                             device_identity(fleet, device, known_machine(device)))
             .empty();
}

/// Of whom the measurements are: part of the entry's name.
std::string devices_hash(const Profile& profile) {
  json devices = json::object();
  for (const DeviceProfile& device : profile.devices) devices[device.device] = device.identity;
  const std::string text = devices.dump();
  return xxh3_64_hex(text.data(), text.size());
}

}  // namespace

std::string ProfileCache::prefix(const JobSpec& job) const {
  return profile_job_key(job) + "-" + installation_ + "-";
}

std::vector<ProfileCache::Entry> ProfileCache::entries_of(const JobSpec& job) const {
  std::vector<Entry> found = entries();
  const std::string begin = prefix(job);
  std::erase_if(found, [&](const Entry& entry) { return !entry.file.starts_with(begin); });
  return found;
}

std::optional<ProfileCache::Entry> ProfileCache::find(const JobSpec& job,
                                                      const FleetSpec& fleet) const {
  std::optional<Entry> best;
  for (Entry& entry : entries_of(job)) {
    if (misfit(entry.profile, job, fleet, known_machine)) continue;
    if (measured_micro_batches(entry.profile) < largest_profiled_micro_batch(job)) continue;
    if (!best || entry.profile.devices.size() < best->profile.devices.size())
      best = std::move(entry);
  }
  if (best) best->profile = only_devices_of(fleet, std::move(best->profile));
  return best;
}

Result<Unit> ProfileCache::store(const JobSpec& job, const Profile& profile, int64_t now) const {
  FileSystem& fs = real_file_system();
  MOTLEY_TRY_VOID(make_cache_directory(fs, directory_));
  const json entry = {{"version", kEntryVersion},
                      {"job", job.name},
                      {"measured_at", now},
                      {"profile", to_json(profile)}};
  const std::string path = directory_ + "/" + prefix(job) + devices_hash(profile) + ".json";
  return write_text_durably(fs, path, entry.dump(1) + "\n");
}

Result<Unit> ProfileCache::forget(const JobSpec& job, const FleetSpec& fleet) const {
  for (const Entry& entry : entries_of(job)) {
    const bool rival =
        std::any_of(fleet.devices.begin(), fleet.devices.end(),
                    [&](const DeviceSpec& device) { return holds(entry.profile, fleet, device); });
    if (rival) MOTLEY_TRY_VOID(real_file_system().remove_all(directory_ + "/" + entry.file));
  }
  return Unit{};
}

std::vector<ProfileCache::Entry> ProfileCache::entries() const {
  std::vector<Entry> found;
  const auto names = real_file_system().list(directory_);
  if (!names) return found;
  for (const std::string& name : *names)
    if (auto entry = read_entry(directory_, name)) found.push_back(std::move(*entry));
  return found;
}

Result<ProfileCache> user_profile_cache(const std::string& worker) {
  const std::string directory = cache_directory() + "/profiles";
  MOTLEY_TRY_VOID(make_cache_directory(real_file_system(), directory));
  MOTLEY_TRY(const CommandOutput output,
             run_command({{worker, "version", "--json"}, ""}, kWorkerLimit));
  if (!output.status.ok())
    return fail(ErrorCode::kBrokenInstall,
                worker + " does not start: " + last_line(output.err) + " (see motley doctor)");
  MOTLEY_TRY(const json version,
             parse_json_file(output.out, worker + " version", ErrorCode::kBrokenInstall));
  const std::string installation = version.value("installation", json()).dump();
  return ProfileCache(directory, xxh3_64_hex(installation.data(), installation.size()));
}

}  // namespace motley
