#include "scheduler/launch/log_file.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace motley {
namespace {

constexpr int64_t kTailBytes = 16384;

}  // namespace

std::string rank_log_path(const std::string& log_directory, int rank) {
  char name[32];
  std::snprintf(name, sizeof name, "/rank-%04d.log", rank);
  return log_directory + name;
}

std::string launch_log_path(const std::string& log_directory) {
  return log_directory + "/launch.log";
}

std::string tail_of(const std::string& path, int64_t from) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const int64_t size = file.tellg();
  file.seekg(std::max(from, size - kTailBytes));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace motley
