#include <algorithm>
#include <map>

#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/store.h"

namespace motley {
namespace {

auto refuse(const std::string& checkpoint, const std::string& why) {
  return fail(ErrorCode::kRunFailed, "checkpoint " + checkpoint + " not committed: " + why);
}

/// An attempt that is over must not commit: after a partition heals it may still be running.
Result<Unit> check_newest_epoch(FileSystem& fs, const std::string& checkpoints_dir, Epoch epoch) {
  MOTLEY_TRY(const auto names, fs.list(checkpoints_dir));
  for (const std::string& name : names) {
    CheckpointName parsed;
    if (parse_checkpoint_directory_name(std::string(without_prefix(name)), &parsed) &&
        parsed.epoch > epoch)
      return fail(ErrorCode::kNotPermitted, checkpoints_dir + "/" + name +
                                                " is of a newer attempt than this one, " +
                                                std::to_string(epoch.value()));
  }
  return Unit{};
}

Result<Unit> check_reports(const std::string& checkpoint, const Manifest& base,
                           const std::vector<ShardReport>& reports) {
  std::vector<bool> present(reports.size());
  for (const ShardReport& report : reports) {
    const std::string rank = "rank " + std::to_string(report.rank);
    const auto index = static_cast<size_t>(report.rank);
    if (!report.ok) return refuse(checkpoint, rank + ": " + report.error);
    if (report.epoch != base.epoch || report.step != base.step)
      return refuse(checkpoint, rank + " reports another save");
    if (report.rank < 0 || index >= reports.size() || present[index])
      return refuse(checkpoint, "not every rank reports once");
    if (report.file.name != shard_file_name(Rank(report.rank)))
      return refuse(checkpoint, rank + " reports a file of another name");
    present[index] = true;
  }
  return Unit{};
}

/// `base` with the tensors and files of all ranks.
Result<Manifest> merged(const Manifest& base, std::vector<ShardReport> reports) {
  std::sort(reports.begin(), reports.end(),
            [](const ShardReport& a, const ShardReport& b) { return a.rank < b.rank; });
  Manifest manifest = base;
  manifest.tensors.clear();
  manifest.files.clear();
  std::map<std::string, size_t> index;
  for (ShardReport& report : reports) {
    manifest.files.push_back(std::move(report.file));
    for (StoredTensor& tensor : report.tensors) {
      const auto [at, fresh] = index.try_emplace(tensor.name, manifest.tensors.size());
      if (fresh) {
        manifest.tensors.push_back(std::move(tensor));
        continue;
      }
      StoredTensor& known = manifest.tensors[at->second];
      if (known.dtype != tensor.dtype || known.shape != tensor.shape)
        return fail(ErrorCode::kRunFailed, "ranks disagree about the form of " + tensor.name);
      std::move(tensor.slices.begin(), tensor.slices.end(), std::back_inserter(known.slices));
    }
  }
  return manifest;
}

Result<Unit> commit_checked(FileSystem& fs, const std::string& checkpoints_dir,
                            const std::string& checkpoint, const Manifest& manifest) {
  const std::string text = to_text(manifest);
  // Whatever a reader would refuse must not be committed: gaps, overlaps, files of other sizes.
  if (const auto valid = manifest_from_text(text); !valid)
    return refuse(checkpoint, valid.error().message);
  const std::string directory = checkpoints_dir + "/" + temporary_directory_name(checkpoint);
  MOTLEY_TRY_VOID(
      write_file_durably(fs, directory + "/" + kManifestName, std::as_bytes(std::span(text))));
  MOTLEY_TRY_VOID(read_manifest(fs, directory, checkpoint));
  return publish(fs, checkpoints_dir, checkpoint);
}

}  // namespace

Result<std::string> commit(FileSystem& fs, const std::string& checkpoints_dir, const Manifest& base,
                           const std::vector<ShardReport>& reports) {
  const std::string checkpoint = checkpoint_directory_name(base.step, base.epoch);
  const auto committed = [&]() -> Result<Unit> {
    MOTLEY_TRY_VOID(check_newest_epoch(fs, checkpoints_dir, base.epoch));
    MOTLEY_TRY_VOID(check_reports(checkpoint, base, reports));
    MOTLEY_TRY(const Manifest manifest, merged(base, reports));
    return commit_checked(fs, checkpoints_dir, checkpoint, manifest);
  }();
  if (committed) return checkpoint;
  // Best effort: what stays is litter to retain().
  (void)abandon(fs, checkpoints_dir, base.step, base.epoch);
  return fail(committed.error());
}

Result<Unit> abandon(FileSystem& fs, const std::string& checkpoints_dir, int64_t step,
                     Epoch epoch) {
  return fs.remove_all(checkpoints_dir + "/" +
                       temporary_directory_name(checkpoint_directory_name(step, epoch)));
}

}  // namespace motley
