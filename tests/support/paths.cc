#include "tests/support/paths.h"

namespace motley::testing {

std::filesystem::path source_dir() { return MOTLEY_SOURCE_DIR; }

std::filesystem::path bin_dir() { return MOTLEY_BIN_DIR; }

}  // namespace motley::testing
