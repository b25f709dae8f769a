#pragma once
// Checkpoints found damaged: they keep their files under another name, ".suspect-step-00001200.e7"
// in the same directory, where they are neither found nor counted nor removed (core/FORMATS.md,
// "manifest"). The worker sets them aside, reports show them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_system.h"
#include "core/result.h"

namespace motley {

struct SetAside {
  int64_t step = 0;
  std::string directory;  ///< its name within the checkpoints directory
  std::string why;        ///< one line; empty when it is not recorded
};

std::string suspect_directory_name(std::string_view checkpoint);

/// Takes `checkpoint` out of the way and writes why into it. Returns its new name; kIo when it is
/// still where it was. For one process of all that see the directory.
Result<std::string> set_aside(FileSystem& fs, const std::string& checkpoints_dir,
                              const std::string& checkpoint, const std::string& why);

/// What lies there set aside, oldest epoch and step first; none where nothing was ever saved, kIo
/// when it cannot be listed.
Result<std::vector<SetAside>> set_aside_in(FileSystem& fs, const std::string& checkpoints_dir);

}  // namespace motley
