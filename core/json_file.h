#pragma once
// JSON documents in files: job.json, plans, profiles, reports.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/file_system.h"
#include "core/result.h"

namespace motley {

/// `text`, which is what `path` holds, as JSON. An error has `code` and the place of the fault:
/// kInvalidSpec for what a user hands us, kCorrupt for what we wrote. Depth is bounded.
Result<nlohmann::json> parse_json_file(std::string_view text, const std::string& path,
                                       ErrorCode code);

/// Also kNotFound, and kInvalidSpec for a file of more than 256 MiB.
Result<nlohmann::json> read_json_file(FileSystem& fs, const std::string& path, ErrorCode code);

}  // namespace motley
