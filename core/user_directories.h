#pragma once
// Making what lies below state_directory() and cache_directory() (core/debug_env.h).

#include <string>

#include "core/file_system.h"
#include "core/result.h"

namespace motley {

/// Makes the directory and sees that it may be written. kNotPermitted naming it and the variable
/// that moves it, also when its path is not UTF-8.
Result<Unit> make_state_directory(FileSystem& fs, const std::string& path);
Result<Unit> make_cache_directory(FileSystem& fs, const std::string& path);

}  // namespace motley
