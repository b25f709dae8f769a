#include "worker/checkpoint/transfer.h"

#include <algorithm>

#include "core/hash.h"
#include "worker/checkpoint/directory.h"

namespace motley {
namespace {

/// Whether these bytes are the file whose hashes the report carries.
bool matches(const ShardReport& report, std::span<const std::byte> bytes) {
  const StoredFile& file = report.file;
  const auto size = static_cast<int64_t>(bytes.size());
  const auto hash_of = [&](int64_t begin, int64_t count) {
    return xxh3_128_hex(bytes.data() + begin, static_cast<size_t>(count));
  };
  if (size != file.bytes || file.header_bytes < 0 || file.header_bytes > size) return false;
  if (hash_of(0, file.header_bytes) != file.header_hash) return false;
  for (const StoredTensor& tensor : report.tensors) {
    for (const StoredSlice& slice : tensor.slices) {
      if (slice.offset < 0 || slice.bytes < 0 || slice.offset > size) return false;
      if (slice.bytes > size - slice.offset) return false;
      if (static_cast<int64_t>(slice.block_hashes.size()) != block_count(slice.bytes)) return false;
      for (int64_t begin = 0; begin < slice.bytes; begin += kHashBlockBytes) {
        const int64_t count = std::min(kHashBlockBytes, slice.bytes - begin);
        if (hash_of(slice.offset + begin, count) !=
            slice.block_hashes[static_cast<size_t>(begin / kHashBlockBytes)])
          return false;
      }
    }
  }
  return true;
}

}  // namespace

Result<Unit> write_received_shard(FileSystem& fs, const std::string& checkpoints_dir,
                                  const ShardReport& report, std::span<const std::byte> bytes) {
  if (report.file.name != shard_file_name(Rank(report.rank)) || !matches(report, bytes))
    return fail(ErrorCode::kCorrupt, "the shard of rank " + std::to_string(report.rank) +
                                         " did not arrive as it was sealed");
  const std::string directory =
      checkpoints_dir + "/" +
      temporary_directory_name(checkpoint_directory_name(report.step, report.epoch));
  MOTLEY_TRY_VOID(fs.make_directories(directory));
  return write_file_durably(fs, directory + "/" + report.file.name, bytes);
}

Result<Unit> export_checkpoint(FileSystem& fs, const std::string& checkpoints_dir,
                               const std::string& directory, size_t chunk_bytes,
                               const ChunkSink& sink) {
  const std::string path = checkpoints_dir + "/" + directory;
  MOTLEY_TRY(const Manifest manifest, read_manifest(fs, path, directory));
  std::vector<std::string> names;
  for (const StoredFile& file : manifest.files) names.push_back(file.name);
  names.emplace_back(kManifestName);
  std::vector<std::byte> chunk;
  for (const std::string& name : names) {
    MOTLEY_TRY(const auto file, fs.open_within(path, name));
    const int64_t size = file->size().value();
    for (int64_t offset = 0; offset < size; offset += static_cast<int64_t>(chunk.size())) {
      chunk.resize(std::min(chunk_bytes, static_cast<size_t>(size - offset)));
      MOTLEY_TRY_VOID(file->read_at(offset, chunk));
      MOTLEY_TRY_VOID(sink(name, chunk));
    }
  }
  return Unit{};
}

CheckpointImport::CheckpointImport(FileSystem& fs, std::string checkpoints_dir,
                                   std::string directory)
    : fs_(fs),
      checkpoints_dir_(std::move(checkpoints_dir)),
      checkpoint_(std::move(directory)),
      temporary_(checkpoints_dir_ + "/" + temporary_directory_name(checkpoint_)) {}

Result<std::unique_ptr<CheckpointImport>> CheckpointImport::begin(FileSystem& fs,
                                                                  std::string checkpoints_dir,
                                                                  std::string directory) {
  CheckpointName parsed;
  if (!parse_checkpoint_directory_name(directory, &parsed))
    return fail(ErrorCode::kCorrupt, "'" + directory + "' is not the name of a checkpoint");
  std::unique_ptr<CheckpointImport> import(
      new CheckpointImport(fs, std::move(checkpoints_dir), std::move(directory)));
  MOTLEY_TRY_VOID(fs.remove_all(import->temporary_));  // of an import that was cut short
  MOTLEY_TRY_VOID(fs.make_directories(import->temporary_));
  return import;
}

Result<Unit> CheckpointImport::append(std::string_view file, std::span<const std::byte> chunk) {
  const std::string name(file);
  if (name != file_name_) {
    MOTLEY_TRY_VOID(close_file());
    if (name != kManifestName && !is_shard_file_name(name))
      return fail(ErrorCode::kCorrupt, checkpoint_ + ": '" + name + "' is no file of a checkpoint");
    MOTLEY_TRY(file_, fs_.create(temporary_ + "/" + name));
    file_name_ = name;
  }
  return file_->append(chunk);
}

Result<Unit> CheckpointImport::finish() {
  MOTLEY_TRY_VOID(close_file());
  MOTLEY_TRY_VOID(read_manifest(fs_, temporary_, checkpoint_));
  return publish(fs_, checkpoints_dir_, checkpoint_);
}

Result<Unit> CheckpointImport::close_file() {
  if (!file_) return Unit{};
  MOTLEY_TRY_VOID(file_->sync());
  MOTLEY_TRY_VOID(file_->close());
  file_.reset();
  return Unit{};
}

}  // namespace motley
