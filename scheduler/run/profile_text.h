#pragma once
// Profiles as people read them.

#include <string>

#include "core/profile.h"
#include "scheduler/run/profile_cache.h"

namespace motley {

/// For each device its curve point by point with spread and fit, its memory, then links and
/// reductions.
std::string profile_text(const Profile& profile);

/// One line for a cached profile.
std::string profile_line(const ProfileCache::Entry& entry);

}  // namespace motley
