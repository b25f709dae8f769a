#include "scheduler/run/process_directory.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>

#include "core/file_system.h"
#include "scheduler/launch/this_host.h"

namespace motley {
namespace {

/// What all drafts of this host begin with.
std::string draft_prefix() { return ".new-" + own_host_name() + "-"; }

/// 0 when `digits` is no process id.
pid_t pid_from(const std::string& digits) {
  pid_t pid = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, pid);
  return parsed.ec == std::errc() && parsed.ptr == end && pid > 0 ? pid : 0;
}

}  // namespace

std::string draft_name() { return draft_prefix() + std::to_string(::getpid()); }

bool is_alive(pid_t pid) { return pid > 0 && (::kill(pid, 0) == 0 || errno == EPERM); }

void sweep_drafts(const std::string& directory) {
  FileSystem& fs = real_file_system();
  const std::string prefix = draft_prefix();
  const auto names = fs.list(directory);
  if (!names) return;
  for (const std::string& name : *names) {
    const pid_t pid = name.starts_with(prefix) ? pid_from(name.substr(prefix.size())) : 0;
    if (pid > 0 && !is_alive(pid)) (void)fs.remove_all(directory + "/" + name);
  }
}

}  // namespace motley
