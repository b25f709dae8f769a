#include "comm/cpu_quota.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "comm/launch_env.h"

namespace motley {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// "50000 100000": microseconds of each period; "max" or -1 microseconds are no limit.
std::optional<double> cores_in(const std::string& quota_and_period) {
  std::istringstream words(quota_and_period);
  double quota = 0, period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> cores_of_group(const std::string& group) {
  if (auto cores = cores_in(text_of(group + "/cpu.max"))) return cores;
  return cores_in(text_of(group + "/cpu.cfs_quota_us") + " " +
                  text_of(group + "/cpu.cfs_period_us"));
}

/// Nothing is no limit.
std::optional<double> lesser(std::optional<double> a, std::optional<double> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

/// Of the group at `path`, and of those it is in.
std::optional<double> least_above(const std::string& mount, std::string path) {
  std::optional<double> least = cores_of_group(mount + path);
  while (!path.empty()) {
    path.erase(path.rfind('/'));
    least = lesser(least, cores_of_group(mount + path));
  }
  return least;
}

}  // namespace

std::optional<double> cpu_quota(std::string_view own, const std::string& mount) {
  std::istringstream lines{std::string(own)};
  std::optional<double> least;
  // 4:cpu,cpuacct:/some/group, in version 2 0::/some/group
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool version_2 = controllers == ",,";
    if (!version_2 && controllers.find(",cpu,") == std::string::npos) continue;
    std::string path = line.substr(second + 1);
    if (path == "/" || path.rfind('/', 0) != 0) path.clear();
    least = lesser(least, least_above(mount + (version_2 ? "" : "/cpu"), path));
  }
  return least;
}

bool cpu_time_is_limited() {
  static const bool limited = [] {
    constexpr double kCoresARank = 2;
    const auto cores = cpu_quota(text_of("/proc/self/cgroup"), "/sys/fs/cgroup");
    const auto launched = launch_env();
    const int ranks = launched ? std::max(launched->local_size, 1) : 1;
    return cores && *cores < kCoresARank * ranks;
  }();
  return limited;
}

}  // namespace motley
