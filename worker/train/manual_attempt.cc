#include "worker/train/manual_attempt.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/json_file.h"
#include "core/json_place.h"
#include "core/log.h"
#include "core/manifest.h"
#include "core/plan_completion.h"
#include "core/run_layout.h"
#include "core/spec/json.h"
#include "worker/train/agreement.h"
#include "worker/train/rank_parts.h"
#include "worker/train/world.h"

namespace motley {
namespace {

/// The error of reading `path` with its place.
Error in_file(Error error, const std::string& path) {
  if (error.place.file.empty()) error.place.file = path;
  return error;
}

/// A plan file carries the fleet it was made for, so that it suffices on another machine.
Result<Unit> read_plan_file(Communicator& world, const std::string& path, Attempt* attempt) {
  MOTLEY_TRY(const std::string text, shared_text(world, path));
  MOTLEY_TRY(nlohmann::json document, parse_json_file(text, path, ErrorCode::kInvalidSpec));
  nlohmann::json fleet;
  if (document.is_object() && document.contains("fleet")) {
    fleet = document["fleet"];
    document.erase("fleet");
  } else {
    const std::string beside = std::filesystem::path(path).replace_filename("fleet.json").string();
    const auto fleet_text = shared_text(world, beside);
    if (!fleet_text && fleet_text.error().code == ErrorCode::kNotFound)
      return fail(ErrorCode::kInvalidSpec, "there is no fleet in it: " + how_to_complete(path),
                  {path, 0, 0});
    if (!fleet_text) return fail(fleet_text.error());
    MOTLEY_TRY(fleet, parse_json_file(*fleet_text, beside, ErrorCode::kInvalidSpec));
  }
  if (document.is_object()) document.erase("job");
  auto plan = plan_from_json(document);
  if (!plan) return fail(placed_in(plan.error(), text, path));
  attempt->plan = std::move(*plan);
  auto devices = fleet_from_json(fleet);
  if (!devices) return fail(in_file(devices.error(), path));
  attempt->fleet = std::move(*devices);
  const auto completed = complete(attempt->job, attempt->fleet, &attempt->plan);
  if (!completed) return fail(placed_in(completed.error(), text, path));
  return Unit{};
}

/// Whoever types mpirun has a job in YAML, which `motley` alone reads.
Result<nlohmann::json> parse_job_file(const std::string& text, const std::string& path) {
  auto document = parse_json_file(text, path, ErrorCode::kInvalidSpec);
  if (document || !(path.ends_with(".yaml") || path.ends_with(".yml"))) return document;
  document.error().message += "; this is YAML: `motley export job " + path +
                              " -o job.json` makes the JSON that motley-worker reads";
  return document;
}

int epoch_of_attempt(const std::string& name) {
  int epoch = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, epoch);
  return error == std::errc() && stop == end ? epoch : 0;
}

/// The names in a directory; none while nobody made it.
Result<std::vector<std::string>> names_in(FileSystem& fs, const std::string& directory) {
  auto names = fs.list(directory);
  if (!names && names.error().code == ErrorCode::kNotFound) return std::vector<std::string>();
  return names;
}

/// The largest epoch seen in a run: of attempts, and of checkpoints, whatever became of them.
Result<int> last_epoch(FileSystem& fs, const std::string& run_dir, const std::string& checkpoints) {
  int last = 0;
  MOTLEY_TRY(const auto attempts, names_in(fs, run_dir + "/attempts"));
  for (const std::string& name : attempts) last = std::max(last, epoch_of_attempt(name));
  MOTLEY_TRY(const auto saves, names_in(fs, checkpoints));
  for (const std::string& name : saves) {
    CheckpointName parsed;
    const size_t begin = name.find("step-");
    if (begin != std::string::npos && parse_checkpoint_directory_name(name.substr(begin), &parsed))
      last = std::max(last, parsed.epoch.value());
  }
  return last;
}

/// On rank 0: what `motley run` would find in the directory afterwards.
Result<Unit> prepare_run_directory(FileSystem& fs, Attempt* attempt) {
  const std::string& run_dir = attempt->run_dir;
  MOTLEY_TRY_VOID(fs.make_directories(run_dir));
  const std::string job_path = run_dir + "/job.json";
  if (fs.exists(job_path)) {
    MOTLEY_TRY(const auto document, read_json_file(fs, job_path, ErrorCode::kInvalidSpec));
    MOTLEY_TRY(const JobSpec before, job_from_json(document));
    const std::string key = first_incompatible_key(before, attempt->job);
    if (!key.empty())
      return fail(ErrorCode::kInvalidSpec, key + " has changed since the run in " + run_dir +
                                               " began: give another --run-dir");
  }
  MOTLEY_TRY_VOID(write_text_durably(fs, job_path, to_json(attempt->job).dump(2) + "\n"));
  const std::string checkpoints = checkpoints_directory(run_dir, attempt->job.checkpoint);
  MOTLEY_TRY(const int last, last_epoch(fs, run_dir, checkpoints));
  attempt->epoch = Epoch(last + 1);
  const std::string directory = attempt_directory(run_dir, attempt->epoch);
  MOTLEY_TRY_VOID(fs.make_directories(directory));
  MOTLEY_TRY_VOID(fs.sync_directory(run_dir + "/attempts"));
  MOTLEY_TRY_VOID(
      write_text_durably(fs, directory + "/attempt.json", to_json(*attempt).dump() + "\n"));
  return write_text_durably(fs, directory + "/plan.json", to_json(attempt->plan).dump(2) + "\n");
}

}  // namespace

Result<Attempt> read_manual_attempt(Communicator& world, const ManualAttemptFiles& files) {
  Attempt attempt;
  MOTLEY_TRY(const std::string text, shared_text(world, files.job));
  MOTLEY_TRY(const nlohmann::json document, parse_job_file(text, files.job));
  auto job = job_from_json(document);
  if (!job) return fail(in_file(job.error(), files.job));
  attempt.job = std::move(*job);
  MOTLEY_TRY_VOID(read_plan_file(world, files.plan, &attempt));
  if (const auto checked = check_world(attempt.plan, world.size()); !checked)
    return joint_failure(world, checked.error().code, checked.error().message);
  attempt.resume_checkpoint = files.resume;
  attempt.run_dir = std::filesystem::absolute(files.run_dir).lexically_normal().string();
  MOTLEY_TRY_VOID(world.broadcast(attempt.run_dir, 0));
  return attempt;
}

Result<Unit> begin_manual_attempt(Communicator& world, FileSystem& fs, Attempt* attempt) {
  Result<Unit> prepared = Unit{};
  if (world.rank() == 0) prepared = prepare_run_directory(fs, attempt);
  MOTLEY_TRY_VOID(all_succeeded(world, prepared));
  std::string epoch = std::to_string(attempt->epoch.value());
  MOTLEY_TRY_VOID(world.broadcast(epoch, 0));
  attempt->epoch = Epoch(std::stoi(epoch));
  return Unit{};
}

}  // namespace motley
