#include "scheduler/launch/worker_program.h"

#include <filesystem>

#include "core/debug_env.h"
#include "scheduler/launch/environment.h"

namespace motley {

std::string own_program() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

Result<std::string> worker_program() {
  const std::string& chosen = debug_env().worker_path;
  const std::string path =
      !chosen.empty()
          ? chosen
          : (std::filesystem::path(own_program()).parent_path() / "motley-worker").string();
  if (find_program(path).empty())
    return fail(ErrorCode::kBrokenInstall, "no worker program at " + path +
                                               "; install motley-worker beside motley, or set "
                                               "MOTLEY_WORKER");
  return path;
}

}  // namespace motley
