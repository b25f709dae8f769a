#include "core/module.h"

#include <system_error>

#include "core/debug_env.h"

namespace motley {

namespace fs = std::filesystem;

fs::path module_path(const std::string& name) { return path_beside_modules(name + ".so"); }

fs::path path_beside_modules(const std::string& file) {
  std::error_code error;
  const fs::path given = fs::path(debug_env().modules) / file;
  if (!debug_env().modules.empty() && fs::exists(given, error)) return given;
  const fs::path bin = fs::read_symlink("/proc/self/exe", error).parent_path();
  const fs::path built = bin.parent_path() / "lib" / file;
  const fs::path above = bin.parent_path().parent_path() / "lib" / file;
  const fs::path installed = bin.parent_path() / "lib/motley" / file;
  for (const fs::path& path : {built, above, installed})
    if (fs::exists(path, error)) return path;
  return built;
}

}  // namespace motley
