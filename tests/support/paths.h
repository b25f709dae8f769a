#pragma once

#include <filesystem>

namespace motley::testing {

/// The root of the repository this test was built from: golden files, configs.
std::filesystem::path source_dir();

/// Where the programs of this build are: `bin_dir() / "motley"`.
std::filesystem::path bin_dir();

}  // namespace motley::testing
