#pragma once
// Checkpoints between hosts that do not share a file system: shards come to the committer,
// committed checkpoints go to hosts that will need them. Bytes in memory here; who carries them is
// the caller's affair.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/file_system.h"
#include "core/result.h"
#include "worker/checkpoint/store.h"

namespace motley {

/// On the committer's host, before commit(): writes a shard that another host's rank streamed
/// (ShardWriter::shard_bytes), durably. kCorrupt when the bytes are not the ones its report seals.
Result<Unit> write_received_shard(FileSystem& fs, const std::string& checkpoints_dir,
                                  const ShardReport& report, std::span<const std::byte> bytes);

/// Receives the files of a checkpoint one after the other, each from its beginning.
using ChunkSink =
    std::function<Result<Unit>(std::string_view file, std::span<const std::byte> chunk)>;

/// Reads a committed checkpoint in chunks of at most `chunk_bytes`, the manifest last. Uses memory
/// for one chunk. Stops at the sink's first error.
Result<Unit> export_checkpoint(FileSystem& fs, const std::string& checkpoints_dir,
                               const std::string& directory, size_t chunk_bytes,
                               const ChunkSink& sink);

/// Builds a committed checkpoint from the chunks of export_checkpoint; visible only after finish().
/// Destroyed earlier, it leaves a temporary directory that retain() removes.
class CheckpointImport {
 public:
  /// kCorrupt when `directory` is not the name of a checkpoint.
  static Result<std::unique_ptr<CheckpointImport>> begin(FileSystem& fs,
                                                         std::string checkpoints_dir,
                                                         std::string directory);
  Result<Unit> append(std::string_view file, std::span<const std::byte> chunk);
  /// Checks the manifest and the files' sizes, then commits as a save does. Blocks are verified by
  /// whoever loads them.
  Result<Unit> finish();

 private:
  CheckpointImport(FileSystem& fs, std::string checkpoints_dir, std::string directory);
  Result<Unit> close_file();

  FileSystem& fs_;
  const std::string checkpoints_dir_;
  const std::string checkpoint_;
  const std::string temporary_;  ///< path
  std::string file_name_;        ///< of the file being received
  std::unique_ptr<WritableFile> file_;
};

}  // namespace motley
