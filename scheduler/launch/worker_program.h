#pragma once
// Where motley-worker is. Every host of a fleet has it at the same path.

#include <string>

#include "core/result.h"

namespace motley {

/// The file this process was started from; after an update, the one that has taken its place.
std::string own_program();
/// The same, of what the kernel says of it (/proc/self/exe).
std::string program_of_link(const std::string& link);

/// $MOTLEY_WORKER, or `motley-worker` beside our own program; kBrokenInstall when there is none.
Result<std::string> worker_program();
/// The same for any `chosen` (empty: none) and any program of ours.
Result<std::string> worker_program_beside(const std::string& own, const std::string& chosen);

/// The last line that motley-worker wrote, to be quoted in a message of ours: without its name.
std::string last_words_of_worker(const std::string& text);

}  // namespace motley
