#pragma once
// Modules: the shared libraries in lib/ that hold what a machine may lack (MPI, CUDA), opened at
// run time.

#include <filesystem>
#include <string>

namespace motley {

/// Where module `name` of this build is or would be: lib/ beside the bin/ of the running program
/// (or of bin/tests/), lib/motley/ there where it is installed, or in the directory that
/// MOTLEY_MODULES names, if it is there. Whether the file exists is for the caller to find out.
std::filesystem::path module_path(const std::string& name);
/// The same of any file that lies beside the modules.
std::filesystem::path path_beside_modules(const std::string& file);

}  // namespace motley
