#pragma once

#include <string>

#include "core/result.h"

namespace motley {

/// One attempt of a service's job, in the process that this is: what `motley run` does, on the
/// devices and in the directory of the attempt's order, resumed from the newest checkpoint of the
/// job. How it ended is recorded last. Nothing is done where another process has the attempt.
Result<int> perform_attempt(const std::string& directory);

}  // namespace motley
