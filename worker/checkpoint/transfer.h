#pragma once
// Checkpoints between hosts that do not share a file system: shards come to the committer,
// committed checkpoints go to hosts that will need them. Files travel in chunks, are written as
// they come, and are checked against their hashes before anyone uses them. Who carries the chunks
// is the caller's affair.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/file_system.h"
#include "core/hash.h"
#include "core/result.h"
#include "worker/checkpoint/store.h"

namespace motley {

/// The most of a file that is in memory, or in one message, while it travels. A manifest (at most
/// kMaxManifestBytes) is read whole.
inline constexpr size_t kTransferChunkBytes = 4 << 20;

/// A file of which the hashes are known before it comes, chunk by chunk.
class SealedFile {
 public:
  /// Creates `file.name` in `directory`; its slices are those of `tensors` that name it. kCorrupt
  /// when these do not fill it.
  static Result<std::unique_ptr<SealedFile>> create(FileSystem& fs, const std::string& directory,
                                                    const StoredFile& file,
                                                    const std::vector<StoredTensor>& tensors);
  /// kCorrupt at the first block that is not the sealed one.
  Result<Unit> append(std::span<const std::byte> chunk);
  /// Makes the file durable; kCorrupt when it is not complete.
  Result<Unit> finish();

 private:
  struct Block {
    int64_t begin = 0;
    int64_t end = 0;
    std::string hash;
  };
  static Result<std::vector<Block>> blocks_of(const StoredFile& file,
                                              const std::vector<StoredTensor>& tensors);
  SealedFile(std::string path, std::vector<Block> blocks, std::unique_ptr<WritableFile> file);
  tl::unexpected<Error> differs() const;

  const std::string path_;
  const std::vector<Block> blocks_;  ///< in the order of the file, without holes
  const std::unique_ptr<WritableFile> file_;
  size_t block_ = 0;                          ///< the one being received
  int64_t position_ = 0;                      ///< in the file
  Xxh3Stream hash_{Xxh3Stream::Width::k128};  ///< of the block so far
};

/// On the committer's host, before commit(): the shard that `report`, of another host's rank,
/// announces, to be filled with what that rank streams (ShardWriter::shard_bytes).
Result<std::unique_ptr<SealedFile>> receive_shard(FileSystem& fs,
                                                  const std::string& checkpoints_dir,
                                                  const ShardReport& report);

/// Receives the files of a checkpoint one after the other, each from its beginning.
using ChunkSink =
    std::function<Result<Unit>(std::string_view file, std::span<const std::byte> chunk)>;

/// Reads a committed checkpoint in chunks of at most `chunk_bytes`, the manifest first. Stops at
/// the sink's first error; kCorrupt or kIo when the checkpoint cannot be read (`judged`,
/// directory.h).
Result<Unit> export_checkpoint(FileSystem& fs, const std::string& checkpoints_dir,
                               const std::string& directory, size_t chunk_bytes,
                               const ChunkSink& sink);

/// Builds a committed checkpoint from the chunks of export_checkpoint; visible only after finish().
/// Destroyed earlier, it removes what has come.
class CheckpointImport {
 public:
  /// kCorrupt when `directory` is not the name of a checkpoint.
  static Result<std::unique_ptr<CheckpointImport>> begin(FileSystem& fs,
                                                         std::string checkpoints_dir,
                                                         std::string directory);
  ~CheckpointImport();

  /// kCorrupt when a file is not as the manifest seals it; kIo also when there is not room for all.
  Result<Unit> append(std::string_view file, std::span<const std::byte> chunk);
  /// Commits as a save does, in place of what had the name. kCorrupt when something is missing.
  Result<Unit> finish();

 private:
  CheckpointImport(FileSystem& fs, std::string checkpoints_dir, std::string directory);
  Result<Unit> read_manifest_text();
  Result<Unit> open_file(const std::string& name);
  Result<Unit> close_file();

  FileSystem& fs_;
  const std::string checkpoints_dir_;
  const std::string checkpoint_;
  const std::string temporary_;  ///< path
  std::string manifest_text_;
  Manifest manifest_;      ///< when the first shard has begun
  std::string file_name_;  ///< of the shard being received
  std::unique_ptr<SealedFile> file_;
  bool published_ = false;
};

}  // namespace motley
