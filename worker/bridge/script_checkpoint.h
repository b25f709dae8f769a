#pragma once
// Checkpoints of a script that uses motley_torch (core/FORMATS.md, "script checkpoint"): rank 0
// writes the shard itself and has the rest done here, by `motley-worker script-checkpoint`.

#include <functional>
#include <string>

#include "core/file_system.h"
#include "core/manifest.h"
#include "core/result.h"

namespace motley {

/// Takes a line for whoever looks on.
using Tell = std::function<void(const std::string& line)>;

/// Commits the directory `.tmp-step-…`, a path, in which there is one durable shard, and keeps the
/// newest `keep` checkpoints; `tell` hears of older ones that do not go. `base` is the manifest but
/// for its step, epoch, tensors and files. Returns the checkpoint's path. On failure the directory
/// is removed: kUsage where its name is none of a checkpoint's, kCorrupt where the shard is no
/// safetensors file of a state, kNotPermitted where a newer attempt has been here.
Result<std::string> commit_script(FileSystem& fs, const std::string& temporary, Manifest base,
                                  int keep, const Tell& tell);

/// The path of the newest checkpoint that is whole to its last byte; empty where nothing was ever
/// saved. Damaged ones are set aside (core/set_aside.h), what cannot be read is passed over, and
/// `tell` hears of each. kCorrupt where there are only such, kUnsupported where the newest is of
/// another version of its format.
Result<std::string> newest_whole(FileSystem& fs, const std::string& checkpoints_dir,
                                 const Tell& tell);

}  // namespace motley
