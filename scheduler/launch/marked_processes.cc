#include "scheduler/launch/marked_processes.h"

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>

#include "core/clock.h"

namespace motley {
namespace {

/// Empty of another user's process, a zombie, and one that has gone.
std::string environment_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// What follows `entry` in the first entry that begins so.
std::optional<std::string> rest_of(const std::string& environment, const std::string& entry) {
  size_t at = environment.compare(0, entry.size(), entry) == 0 ? 0 : std::string::npos;
  if (at != 0) at = environment.find('\0' + entry);
  if (at == std::string::npos) return std::nullopt;
  return environment.c_str() + at + (at == 0 ? 0 : 1) + entry.size();
}

template <class Take>
void for_each_marked(const std::string& entry, const Take& take) {
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), &::closedir);
  if (!proc) return;
  while (const dirent* name = ::readdir(proc.get())) {
    if (std::isdigit(static_cast<unsigned char>(name->d_name[0])) == 0) continue;
    const pid_t pid = std::atoi(name->d_name);
    if (const auto rest = rest_of(environment_of(pid), entry)) take(pid, *rest);
  }
}

}  // namespace

std::vector<pid_t> marked_processes(const std::string& entry) {
  std::vector<pid_t> found;
  for_each_marked(entry, [&](pid_t pid, const std::string&) { found.push_back(pid); });
  return found;
}

std::set<std::string> marks(const std::string& entry) {
  std::set<std::string> found;
  for_each_marked(entry, [&](pid_t, const std::string& rest) { found.insert(rest); });
  return found;
}

bool kill_marked(const std::string& entry, Nanos limit) {
  const Nanos until = steady_clock().now() + limit;
  while (true) {
    const std::vector<pid_t> left = marked_processes(entry);
    if (left.empty()) return true;
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    if (steady_clock().now() > until) return false;
    // A killed process takes a moment to go; what it had started meanwhile is seen next time.
    steady_clock().sleep_until(steady_clock().now() + nanos_of_seconds(0.002));
  }
}

}  // namespace motley
