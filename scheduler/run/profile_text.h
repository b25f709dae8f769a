#pragma once
// Profiles as people read them.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/profile.h"
#include "core/spec/fleet_spec.h"
#include "scheduler/run/profile_cache.h"

namespace motley {

/// For each device its curve point by point with spread and fit, its memory, then links and
/// reductions.
std::string profile_text(const Profile& profile);

/// One line for a cached profile.
std::string profile_line(const ProfileCache::Entry& entry);

/// That a profile was not measured now but when, and what would measure it; without a line's end.
std::string from_the_cache(const ProfileCache::Entry& entry, int64_t now);

/// "measuring 4 devices"
std::string measuring_text(size_t devices);

/// For each device whose repetitions differ so much that something else must have used it, a line
/// that says so and what to do.
std::vector<std::string> doubts(const Profile& profile);

/// That the links a fleet declares decide nothing so far, where it has any.
std::string unused_links(const FleetSpec& fleet);

}  // namespace motley
