#pragma once
// The logs of an attempt: one for each rank, written on its own host, and that of the launching
// program.

#include <cstdint>
#include <string>

namespace motley {

std::string rank_log_path(const std::string& log_directory, int rank);
std::string launch_log_path(const std::string& log_directory);

/// The last 16 KiB of what a log holds from byte `from` on; empty when it cannot be read.
std::string tail_of(const std::string& path, int64_t from = 0);

}  // namespace motley
