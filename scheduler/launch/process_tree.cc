#include "scheduler/launch/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>

#include "core/clock.h"

namespace motley {
namespace {

/// Field 4 of /proc/<pid>/stat; 0 when it is gone. The name before it may hold anything, also ")
/// R".
pid_t parent_of(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[512];
  const ssize_t size = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (size <= 0) return 0;
  text[size] = '\0';
  const char* name_end = std::strrchr(text, ')');
  char state = 0;
  int parent = 0;
  if (name_end == nullptr || std::sscanf(name_end + 1, " %c %d", &state, &parent) != 2) return 0;
  return parent;
}

std::unordered_map<pid_t, std::vector<pid_t>> children_of_all() {
  std::unordered_map<pid_t, std::vector<pid_t>> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), &::closedir);
  if (!proc) return children;
  while (const dirent* entry = ::readdir(proc.get())) {
    if (!std::isdigit(static_cast<unsigned char>(entry->d_name[0]))) continue;
    const pid_t pid = std::atoi(entry->d_name);
    if (const pid_t parent = parent_of(pid); parent > 0) children[parent].push_back(pid);
  }
  return children;
}

}  // namespace

std::vector<pid_t> descendants_of(pid_t ancestor) {
  const auto children = children_of_all();
  std::vector<pid_t> found;
  std::vector<pid_t> open = {ancestor};
  while (!open.empty()) {
    const auto next = children.find(open.back());
    open.pop_back();
    if (next == children.end()) continue;
    found.insert(found.end(), next->second.begin(), next->second.end());
    open.insert(open.end(), next->second.begin(), next->second.end());
  }
  return found;
}

void become_subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> kill_descendants(const std::set<pid_t>& spared, Nanos limit) {
  const Nanos until = steady_clock().now() + limit;
  while (true) {
    std::vector<pid_t> left = descendants_of(::getpid());
    std::erase_if(left, [&](pid_t pid) { return spared.count(pid) != 0; });
    if (left.empty()) return left;
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    for (const pid_t pid : left) ::waitpid(pid, nullptr, WNOHANG);
    if (steady_clock().now() > until) return left;
    // A killed process takes a moment to go; what it had forked meanwhile is seen in the next
    // round.
    steady_clock().sleep_until(steady_clock().now() + nanos_of_seconds(0.002));
  }
}

}  // namespace motley
