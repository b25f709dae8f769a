#include "scheduler/run/fork_run.h"

#include <algorithm>

#include "core/file_system.h"
#include "core/manifest_files.h"
#include "scheduler/run/metrics_log.h"

namespace motley {
namespace {

constexpr Bytes kLargestManifest{int64_t{1} << 30};
constexpr int64_t kCopyPiece = 4 << 20;

std::string steps_text(const std::vector<CheckpointName>& committed) {
  std::string text;
  for (auto name = committed.rbegin(); name != committed.rend(); ++name)
    text += (text.empty() ? "" : ", ") + std::to_string(name->step);
  return text.empty() ? "none" : text;
}

Result<Unit> copy_shard(const std::string& from, const std::string& to, const std::string& name) {
  FileSystem& fs = real_file_system();
  MOTLEY_TRY(const auto source, fs.open_within(from, name));
  MOTLEY_TRY(const auto copy, fs.create(to + "/" + name));
  std::vector<std::byte> piece;
  for (int64_t done = 0; done < source->size().value(); done += kCopyPiece) {
    piece.resize(static_cast<size_t>(std::min(kCopyPiece, source->size().value() - done)));
    MOTLEY_TRY_VOID(source->read_at(done, piece));
    MOTLEY_TRY_VOID(copy->append(piece));
  }
  MOTLEY_TRY_VOID(copy->sync());
  return copy->close();
}

/// The copy in `directory` is what the manifest says; if not, what it was copied from is not
/// either.
Result<Unit> check_shard(const Manifest& manifest, const StoredFile& file,
                         const std::string& directory, const std::string& original) {
  const auto verified = verify_file(real_file_system(), directory, manifest, file);
  if (verified) return Unit{};
  std::string why = verified.error().message;
  if (why.starts_with(directory)) why.replace(0, directory.size(), original);
  return fail(verified.error().code, why + ": take another --step");
}

/// Copies a committed checkpoint, durable and verified; the manifest comes last, as everywhere.
Result<Unit> copy_checkpoint(const std::string& from, const std::string& to) {
  FileSystem& fs = real_file_system();
  MOTLEY_TRY_VOID(fs.make_directories(to));
  const std::string manifest_path = from + "/" + kManifestName;
  MOTLEY_TRY(const std::string text, read_text(fs, manifest_path, kLargestManifest));
  const auto manifest = manifest_from_text(text);
  if (!manifest)
    return fail(manifest.error().code, manifest_path + ": " + manifest.error().message);
  for (const StoredFile& file : manifest->files) {
    MOTLEY_TRY_VOID(copy_shard(from, to, file.name));
    MOTLEY_TRY_VOID(check_shard(*manifest, file, to, from));
  }
  MOTLEY_TRY_VOID(write_text_durably(fs, to + "/" + kManifestName, text));
  return fs.sync_directory(parent_directory(to));
}

/// Everything of `from` that a run of the same job goes on with at `step`.
Result<Unit> fill_from(const RunDirectory& from, const JobSpec& job, const CheckpointName& name,
                       const RunDirectory::Draft& draft) {
  FileSystem& fs = real_file_system();
  const std::string directory = checkpoint_directory_name(name.step, name.epoch);
  MOTLEY_TRY_VOID(copy_checkpoint(from.checkpoints(job) + "/" + directory,
                                  draft.checkpoints + "/" + directory));
  MOTLEY_TRY_VOID(write_text_durably(fs, draft.path + "/metrics.jsonl",
                                     metrics_until(from.file("metrics.jsonl"), name.step)));
  for (const char* file :
       {"data.json", "fleet.json", "profile.json", "plan.json", "equal_split.json"}) {
    const auto text = from.read(file);
    if (text) MOTLEY_TRY_VOID(write_text_durably(fs, draft.path + "/" + file, *text));
  }
  return Unit{};
}

}  // namespace

Result<CheckpointName> checkpoint_of_step(const RunDirectory& run, const JobSpec& job,
                                          int64_t step) {
  const std::vector<CheckpointName> committed = run.committed(job);
  const auto found = std::find_if(committed.begin(), committed.end(),
                                  [&](const CheckpointName& name) { return name.step == step; });
  if (found != committed.end()) return *found;
  return fail(ErrorCode::kNotFound, "run " + run.title() + " has no checkpoint of step " +
                                        std::to_string(step) +
                                        "; it has: " + steps_text(committed));
}

Result<RunDirectory> fork_run(const RunDirectory& from, const JobSpec& job, int64_t step) {
  MOTLEY_TRY(const CheckpointName name, checkpoint_of_step(from, job, step));
  return RunDirectory::create(
      job, [&](const RunDirectory::Draft& draft) { return fill_from(from, job, name, draft); });
}

}  // namespace motley
