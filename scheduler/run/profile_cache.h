#pragma once
// Measured profiles, kept until anything they depend on changes: device, its pace, model shape,
// precision, numerics, what is installed (core/FORMATS.md, "profile cache").

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/profile.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley {

class ProfileCache {
 public:
  /// `directory`: usually cache_directory() + "/profiles". `installation` stands for the code that
  /// measures: worker, modules, libraries.
  ProfileCache(std::string directory, std::string installation)
      : directory_(std::move(directory)), installation_(std::move(installation)) {}

  struct Entry {
    std::string file;
    std::string job;
    int64_t measured_at = 0;  ///< seconds since 1970
    Profile profile;
  };

  /// What is stored for this job, covers every device of the fleet and every micro-batch that the
  /// job may use, the profile reduced to those devices; of several the one with the fewest others,
  /// whose links and reductions are the closest.
  std::optional<Entry> find(const JobSpec& job, const FleetSpec& fleet) const;
  /// kNotPermitted when there can be no such directory. `now`: seconds since 1970.
  Result<Unit> store(const JobSpec& job, const Profile& profile, int64_t now) const;
  /// Removes what find() could give for any device of the fleet, so that a new measurement has no
  /// rival.
  Result<Unit> forget(const JobSpec& job, const FleetSpec& fleet) const;

  /// All that is readable, for people to look at; by file name.
  std::vector<Entry> entries() const;

 private:
  std::vector<Entry> entries_of(const JobSpec& job) const;
  std::string prefix(const JobSpec& job) const;

  std::string directory_;
  std::string installation_;
};

/// The cache of this user, for the worker that would be launched now. kNotPermitted when it cannot
/// be written, kBrokenInstall when the worker does not start.
Result<ProfileCache> user_profile_cache(const std::string& worker);

}  // namespace motley
