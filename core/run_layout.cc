#include "core/run_layout.h"

#include <cstdio>
#include <filesystem>

namespace motley {

std::string checkpoints_directory(const std::string& run_dir, const CheckpointSpec& checkpoint) {
  if (checkpoint.dir.empty()) return run_dir + "/checkpoints";
  const std::filesystem::path run(run_dir);
  return checkpoint.dir + "/" + run.parent_path().filename().string() + "/" +
         run.filename().string();
}

std::string attempt_directory(const std::string& run_dir, Epoch epoch) {
  return run_dir + "/attempts/" + std::to_string(epoch.value());
}

std::string trace_path(const std::string& attempt_directory, Rank rank) {
  char name[40];
  std::snprintf(name, sizeof name, "/trace-rank-%04d.json", rank.value());
  return attempt_directory + name;
}

}  // namespace motley
