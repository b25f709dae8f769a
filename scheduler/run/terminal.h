#pragma once

#include <optional>

namespace motley {

/// How many columns the terminal behind a file descriptor has; nothing where it is none, or does
/// not say.
std::optional<int> terminal_columns(int fd);

}  // namespace motley
