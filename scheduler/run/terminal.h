#pragma once

#include <cstdio>
#include <optional>
#include <string>

namespace motley {

/// How many columns the terminal behind a file descriptor has; nothing where it is none, or does
/// not say.
std::optional<int> terminal_columns(int fd);
std::optional<int> terminal_rows(int fd);  ///< the same of its lines

/// UTF-8 without what would steer a terminal: control characters but line feed and tab become
/// "^[" and the like, those of the second set (C1) as the two characters they stand for; a carriage
/// return before a line feed goes.
std::string without_controls(const std::string& text);

/// What others wrote, for a stream: without controls where that is a terminal, else as it is.
std::string shown_on(std::FILE* to, const std::string& text);

}  // namespace motley
