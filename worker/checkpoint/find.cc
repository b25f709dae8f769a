#include <algorithm>
#include <utility>

#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/store.h"

namespace motley {
namespace {

constexpr int kAlwaysKept = 2;

/// Names of committed checkpoints, valid or not, newest first.
std::vector<std::string> newest_first(const std::vector<std::string>& names) {
  std::vector<std::pair<std::pair<Epoch, int64_t>, std::string>> found;
  for (const std::string& name : names) {
    CheckpointName parsed;
    if (parse_checkpoint_directory_name(name, &parsed))
      found.push_back({{parsed.epoch, parsed.step}, name});
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> sorted;
  for (auto& [order, name] : found) sorted.push_back(std::move(name));
  return sorted;
}

/// Left behind by an attempt that ended while saving, or by a removal that was cut short.
bool is_litter(const std::string& name, Epoch live) {
  const std::string checkpoint(without_prefix(name));
  CheckpointName parsed;
  if (checkpoint == name || !parse_checkpoint_directory_name(checkpoint, &parsed)) return false;
  return name == trash_directory_name(checkpoint) || parsed.epoch < live;
}

}  // namespace

Result<Unit> retain(FileSystem& fs, const std::string& checkpoints_dir, int keep, Epoch live) {
  MOTLEY_TRY(const auto names, fs.list(checkpoints_dir));
  for (const std::string& name : names) {
    if (is_litter(name, live)) MOTLEY_TRY_VOID(remove_if_there(fs, checkpoints_dir + "/" + name));
  }
  int valid = 0;
  for (const std::string& name : newest_first(names)) {
    // Older than the last one kept: nobody will load it, valid or not.
    if (valid == std::max(keep, kAlwaysKept))
      MOTLEY_TRY_VOID(remove_checkpoint(fs, checkpoints_dir, name));
    else if (read_manifest(fs, checkpoints_dir + "/" + name, name))
      ++valid;
  }
  return Unit{};
}

Result<std::vector<FoundCheckpoint>> find_checkpoints(FileSystem& fs,
                                                      const std::string& checkpoints_dir,
                                                      std::vector<SuspectCheckpoint>* suspects) {
  std::vector<FoundCheckpoint> found;
  const auto names = fs.list(checkpoints_dir);
  if (!names && names.error().code == ErrorCode::kNotFound) return found;  // nothing was ever saved
  if (!names)
    return fail(ErrorCode::kIo, names.error().message +
                                    ": make it a directory that can be read; while it may hold "
                                    "checkpoints nothing is begun anew");
  for (const std::string& name : newest_first(*names)) {
    auto manifest = read_manifest(fs, checkpoints_dir + "/" + name, name);
    if (manifest)
      found.push_back({name, std::move(*manifest)});
    else if (manifest.error().code == ErrorCode::kUnsupported && found.empty())
      return fail(manifest.error());
    else if (suspects)
      suspects->push_back({name, manifest.error()});
  }
  return found;
}

Result<FoundCheckpoint> open_checkpoint(FileSystem& fs, const std::string& checkpoints_dir,
                                        const std::string& name) {
  const std::string path = checkpoints_dir + "/" + name;
  CheckpointName parsed;
  if (!parse_checkpoint_directory_name(name, &parsed) || !fs.exists(path))
    return fail(ErrorCode::kNotFound, "no checkpoint " + name + " in " + checkpoints_dir);
  MOTLEY_TRY(Manifest manifest, read_manifest(fs, path, name));
  return FoundCheckpoint{name, std::move(manifest)};
}

}  // namespace motley
