#pragma once
// What `motley worth` prints: a table of mixes, and the verdict.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/profile.h"
#include "planner/questions/worth.h"

namespace motley {

/// The weakest kind among the profile's devices.
Evidence weakest_evidence(const Profile& profile);

/// One mix a line, quickest first: devices by type, samples a second, share of the solo sum of
/// those used, cost where prices are known, what there is to say. Then the verdict in one line.
std::string worth_text(const Worth& worth, Evidence evidence);

/// core/FORMATS.md, "worth".
nlohmann::json worth_json(const Worth& worth, Evidence evidence);

}  // namespace motley
