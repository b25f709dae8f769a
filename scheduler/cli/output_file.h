#pragma once
// Files that the user names for output: what a shell's `>` would take, -o takes.

#include <string>
#include <string_view>

#include "core/result.h"

namespace motley {

/// Links are followed; a file that is there is replaced as a whole, keeping its permissions; what
/// is no regular file (a terminal, a pipe, a device), or is our stdout or stderr, is written into.
/// Nothing else is touched. kNotFound where the directory is missing, else kIo.
Result<Unit> write_output_file(const std::string& path, std::string_view text);

/// That its directory is there, for a word before long work.
Result<Unit> check_output_file(const std::string& path);

}  // namespace motley
