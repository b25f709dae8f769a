#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace motley {

/// A file for its owner alone (0600): readers see the old content or the new, also after a power
/// cut; of several writers at once the last one's. Its directory must be there. kIo naming the
/// path.
Result<Unit> write_private_file(const std::string& path, std::string_view text);

}  // namespace motley
