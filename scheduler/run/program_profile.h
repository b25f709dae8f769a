#pragma once
// How long a program's own steps take on a device: told by motley_torch.py, kept until the program,
// its arguments or the device changes (core/FORMATS.md, "program profile").

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/profile.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley {

/// Whether the program would tell: a Python file that its command names imports motley_torch, and
/// there is a batch to share. kNoPlan: which it is not.
Result<Unit> can_be_measured(const JobSpec& job);

/// From what the program told, `text`: the curve of the whole model and the seconds of an update.
Result<DeviceProfile> program_profile_of(const std::string& text);

/// The profiles of this user's programs, by what decides them.
class ProgramProfiles {
 public:
  /// `job`: one that can_be_measured().
  ProgramProfiles(const JobSpec& job, const FleetSpec& fleet);

  /// What is kept of a device like this one.
  std::optional<DeviceProfile> find(const DeviceSpec& device) const;
  /// Keeps what the program told on it.
  Result<Unit> keep(const DeviceSpec& device, const std::string& text) const;
  /// Equal for devices that need not be measured twice.
  std::string identity(const DeviceSpec& device) const;

 private:
  std::string path(const DeviceSpec& device) const;

  const FleetSpec& fleet_;
  std::string directory_;
  std::string program_;  ///< hash of the command and of the scripts that it names
};

}  // namespace motley
