#pragma once
// Whether the files of a checkpoint hold what its manifest says, to the last byte.

#include <string>

#include "core/file_system.h"
#include "core/manifest.h"
#include "core/result.h"

namespace motley {

/// kCorrupt where `file`, one of the manifest's, has another size or a block with another hash;
/// the reason names its path. Else what the file system says. Holds one block in memory.
Result<Unit> verify_file(FileSystem& fs, const std::string& directory, const Manifest& manifest,
                         const StoredFile& file);

}  // namespace motley
