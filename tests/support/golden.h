#pragma once

#include <string>

namespace motley::testing {

/// `text` must be what tests/golden/`name` holds; a failure prints a unified diff. With
/// MOTLEY_UPDATE_GOLDEN=1 the file is written instead: look at what git says then.
void expect_golden(const std::string& name, const std::string& text);

/// The whole of tests/golden/`name`.
std::string golden(const std::string& name);

}  // namespace motley::testing
