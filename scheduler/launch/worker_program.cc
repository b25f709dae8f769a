#include "scheduler/launch/worker_program.h"

#include <filesystem>

#include "core/debug_env.h"
#include "scheduler/launch/command.h"
#include "scheduler/launch/environment.h"

namespace motley {

std::string own_program() {
  std::error_code error;
  return program_of_link(std::filesystem::read_symlink("/proc/self/exe", error).string());
}

std::string program_of_link(const std::string& link) {
  constexpr std::string_view kReplaced = " (deleted)";
  std::error_code error;
  if (!link.ends_with(kReplaced) || std::filesystem::exists(link, error)) return link;
  return link.substr(0, link.size() - kReplaced.size());
}

Result<std::string> worker_program() {
  return worker_program_beside(own_program(), debug_env().worker_path);
}

Result<std::string> worker_program_beside(const std::string& own, const std::string& chosen) {
  const std::string path =
      !chosen.empty() ? chosen
                      : (std::filesystem::path(own).parent_path() / "motley-worker").string();
  if (find_program(path).empty())
    return fail(ErrorCode::kBrokenInstall, "no worker program at " + path +
                                               "; install motley-worker beside motley, or set "
                                               "MOTLEY_WORKER");
  return path;
}

std::string last_words_of_worker(const std::string& text) {
  constexpr std::string_view kName = "motley-worker: ";
  const std::string line = last_line(text);
  return line.starts_with(kName) ? line.substr(kName.size()) : line;
}

}  // namespace motley
