#pragma once
// The process's log: one line a record on stderr, spdlog underneath (kept out of this header).

#include <string>
#include <string_view>

namespace motley {

/// Prefix every line with `who` (e.g. "rank 2"). Call once, early, before other threads log.
/// Logging itself is thread-safe.
void configure_log(const std::string& who);
void log_info(const std::string& message);
void log_warning(const std::string& message);
void log_error(const std::string& message);

/// `text` with line ends and control characters escaped, so that nothing printed for a person can
/// forge a line or steer a terminal.
std::string one_line(std::string_view text);

}  // namespace motley
