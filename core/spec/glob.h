#pragma once
// File names by pattern: * and ? within a name, [abc] [a-z] [!x] one character, ** any number of
// folders, at the end every file below.

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace motley {

/// Whether one name (no '/') matches one part of a pattern. A leading '.' is matched only by
/// itself.
bool name_matches(std::string_view pattern, std::string_view name);

/// The regular files that match, absolute and normalised, sorted, without duplicates. Folders
/// reached through symbolic links are entered where the pattern names them, not by **. kUnsupported
/// where more than kMaxGlobFiles have to be looked at.
Result<std::vector<std::string>> expand_glob(const std::string& base_directory,
                                             const std::string& pattern);

inline constexpr size_t kMaxGlobFiles = 1'000'000;

}  // namespace motley
