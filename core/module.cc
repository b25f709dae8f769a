#include "core/module.h"

#include <system_error>

#include "core/debug_env.h"

namespace motley {

std::filesystem::path module_path(const std::string& name) {
  std::error_code error;
  const std::filesystem::path given = std::filesystem::path(debug_env().modules) / (name + ".so");
  if (!debug_env().modules.empty() && std::filesystem::exists(given, error)) return given;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path bin = program.parent_path();
  const std::filesystem::path file = std::filesystem::path("lib") / (name + ".so");
  const std::filesystem::path beside = bin.parent_path() / file;
  const std::filesystem::path above = bin.parent_path().parent_path() / file;
  return !std::filesystem::exists(beside, error) && std::filesystem::exists(above, error) ? above
                                                                                          : beside;
}

}  // namespace motley
