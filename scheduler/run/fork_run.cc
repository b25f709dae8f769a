#include "scheduler/run/fork_run.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/file_system.h"
#include "scheduler/run/metrics_log.h"

namespace motley {
namespace {

namespace fs = std::filesystem;

std::string steps_text(const std::vector<CheckpointName>& committed) {
  std::string text;
  for (auto name = committed.rbegin(); name != committed.rend(); ++name)
    text += (text.empty() ? "" : ", ") + std::to_string(name->step);
  return text.empty() ? "none" : text;
}

/// Copies a committed checkpoint so that it appears as a whole or not at all.
Result<Unit> copy_checkpoint(const std::string& from, const std::string& directory,
                             const std::string& name) {
  FileSystem& files = real_file_system();
  MOTLEY_TRY_VOID(files.make_directories(directory));
  const std::string draft = directory + "/.tmp-" + name;
  std::error_code error;
  fs::copy(from, draft, fs::copy_options::recursive, error);
  if (error)
    return fail(ErrorCode::kIo, "cannot copy " + from + " to " + draft + ": " + error.message());
  MOTLEY_TRY_VOID(files.rename_new(draft, directory + "/" + name));
  return files.sync_directory(directory);
}

}  // namespace

Result<RunDirectory> fork_run(const RunDirectory& from, const JobSpec& job, int64_t step) {
  const std::vector<CheckpointName> committed = from.committed(job);
  const auto found = std::find_if(committed.begin(), committed.end(),
                                  [&](const CheckpointName& name) { return name.step == step; });
  if (found == committed.end())
    return fail(ErrorCode::kNotFound, "run " + from.title() + " has no checkpoint of step " +
                                          std::to_string(step) +
                                          "; it has: " + steps_text(committed));
  MOTLEY_TRY(RunDirectory run, RunDirectory::create(job));
  const std::string name = checkpoint_directory_name(found->step, found->epoch);
  MOTLEY_TRY_VOID(copy_checkpoint(from.checkpoints(job) + "/" + name, run.checkpoints(job), name));
  MOTLEY_TRY_VOID(run.write("metrics.jsonl", metrics_until(from.file("metrics.jsonl"), step)));
  for (const char* file :
       {"data.json", "fleet.json", "profile.json", "plan.json", "equal_split.json"})
    if (const auto text = from.read(file)) MOTLEY_TRY_VOID(run.write(file, *text));
  return run;
}

}  // namespace motley
