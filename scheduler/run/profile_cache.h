#pragma once
// Measured profiles, kept until anything they depend on changes: device, its pace, model shape,
// precision, numerics, the worker's code (core/FORMATS.md, "profile cache").

#include <optional>
#include <string>
#include <vector>

#include "core/profile.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley {

/// What of a device decides its measurements, as text; equal texts may share measurements.
std::string device_key(const FleetSpec& fleet, const DeviceSpec& device);

class ProfileCache {
 public:
  /// `directory`: usually cache_directory() + "/profiles". `worker_hash` stands for the code.
  ProfileCache(std::string directory, std::string worker_hash)
      : directory_(std::move(directory)), worker_hash_(std::move(worker_hash)) {}

  /// A stored profile of this job that covers every device of the fleet, reduced to those.
  std::optional<Profile> find(const JobSpec& job, const FleetSpec& fleet) const;
  Result<Unit> store(const JobSpec& job, const FleetSpec& fleet, const Profile& profile) const;

  struct Entry {
    std::string file;
    std::string job;
    Profile profile;
  };
  /// All that is readable, for people to look at; by file name.
  std::vector<Entry> entries() const;

 private:
  std::string directory_;
  std::string worker_hash_;
};

/// The cache of this user, for the worker that would be launched now.
Result<ProfileCache> user_profile_cache(const std::string& worker);

}  // namespace motley
