#include "worker/checkpoint/transfer.h"

#include <algorithm>

#include "worker/checkpoint/directory.h"

namespace motley {
namespace {

/// In an order that the receiver can check while it comes.
std::vector<std::string> files_in_order(const Manifest& manifest) {
  std::vector<std::string> names{kManifestName};
  for (const StoredFile& file : manifest.files) names.push_back(file.name);
  return names;
}

}  // namespace

SealedFile::SealedFile(std::string path, std::vector<Block> blocks,
                       std::unique_ptr<WritableFile> file)
    : path_(std::move(path)), blocks_(std::move(blocks)), file_(std::move(file)) {}

Result<std::unique_ptr<SealedFile>> SealedFile::create(FileSystem& fs, const std::string& directory,
                                                       const StoredFile& file,
                                                       const std::vector<StoredTensor>& tensors) {
  MOTLEY_TRY(std::vector<Block> blocks, blocks_of(file, tensors));
  const std::string path = directory + "/" + file.name;
  MOTLEY_TRY(auto created, fs.create(path));
  return std::unique_ptr<SealedFile>(new SealedFile(path, std::move(blocks), std::move(created)));
}

Result<std::vector<SealedFile::Block>> SealedFile::blocks_of(
    const StoredFile& file, const std::vector<StoredTensor>& tensors) {
  std::vector<Block> blocks{{0, file.header_bytes, file.header_hash}};
  for (const StoredTensor& tensor : tensors) {
    const int64_t block_bytes = hash_block_bytes(tensor.shape, tensor.dtype);
    for (const StoredSlice& slice : tensor.slices) {
      if (slice.file != file.name) continue;
      const bool fits = slice.offset >= 0 && slice.bytes > 0 && slice.offset <= file.bytes &&
                        slice.bytes <= file.bytes - slice.offset;
      if (!fits ||
          static_cast<int64_t>(slice.block_hashes.size()) != block_count(slice.bytes, block_bytes))
        return fail(ErrorCode::kCorrupt, file.name + ": a slice does not fit");
      int64_t begin = slice.offset;
      for (const std::string& hash : slice.block_hashes) {
        const int64_t end = std::min(begin + block_bytes, slice.offset + slice.bytes);
        blocks.push_back({begin, end, hash});
        begin = end;
      }
    }
  }
  std::sort(blocks.begin(), blocks.end(),
            [](const Block& a, const Block& b) { return a.begin < b.begin; });
  int64_t end = 0;
  for (const Block& block : blocks) {
    if (block.begin != end || block.end <= block.begin)
      return fail(ErrorCode::kCorrupt, file.name + ": slices overlap or leave a hole");
    end = block.end;
  }
  if (end != file.bytes) return fail(ErrorCode::kCorrupt, file.name + ": of another size");
  return blocks;
}

tl::unexpected<Error> SealedFile::differs() const {
  return fail(ErrorCode::kCorrupt,
              path_ + " did not arrive as it was sealed: byte " + std::to_string(position_));
}

Result<Unit> SealedFile::append(std::span<const std::byte> chunk) {
  for (std::span<const std::byte> rest = chunk; !rest.empty();) {
    if (block_ == blocks_.size()) return differs();
    const Block& block = blocks_[block_];
    const auto part = rest.first(std::min(rest.size(), static_cast<size_t>(block.end - position_)));
    hash_.add(part.data(), part.size());
    position_ += static_cast<int64_t>(part.size());
    rest = rest.subspan(part.size());
    if (position_ < block.end) continue;
    if (hash_.hex() != block.hash) return differs();
    hash_.restart();
    ++block_;
  }
  return file_->append(chunk);
}

Result<Unit> SealedFile::finish() {
  if (block_ != blocks_.size()) return differs();
  MOTLEY_TRY_VOID(file_->sync());
  return file_->close();
}

Result<std::unique_ptr<SealedFile>> receive_shard(FileSystem& fs,
                                                  const std::string& checkpoints_dir,
                                                  const ShardReport& report) {
  if (report.file.name != shard_file_name(Rank(report.rank)))
    return fail(ErrorCode::kCorrupt,
                "rank " + std::to_string(report.rank) + " announces a shard of another name");
  const std::string directory =
      checkpoints_dir + "/" +
      temporary_directory_name(checkpoint_directory_name(report.step, report.epoch));
  MOTLEY_TRY_VOID(fs.make_directories(directory));
  return SealedFile::create(fs, directory, report.file, report.tensors);
}

Result<Unit> export_checkpoint(FileSystem& fs, const std::string& checkpoints_dir,
                               const std::string& directory, size_t chunk_bytes,
                               const ChunkSink& sink) {
  const std::string path = checkpoints_dir + "/" + directory;
  MOTLEY_TRY(const Manifest manifest, read_manifest(fs, path, directory));
  std::vector<std::byte> chunk;
  for (const std::string& name : files_in_order(manifest)) {
    const auto file = fs.open_within(path, name);
    if (!file) return fail(judged(file.error()), file.error().message);
    const int64_t size = (*file)->size().value();
    for (int64_t offset = 0; offset < size; offset += static_cast<int64_t>(chunk.size())) {
      chunk.resize(std::min(chunk_bytes, static_cast<size_t>(size - offset)));
      if (const auto read = (*file)->read_at(offset, chunk); !read)
        return fail(judged(read.error()), read.error().message);
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

CheckpointImport::~CheckpointImport() {
  file_.reset();
  // Best effort: what stays is litter to retain().
  if (!published_) (void)fs_.remove_all(temporary_);
}

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
  if (name == kManifestName && manifest_.files.empty()) {
    if (manifest_text_.size() + chunk.size() > static_cast<size_t>(kMaxManifestBytes))
      return fail(ErrorCode::kCorrupt, checkpoint_ + ": manifest too large");
    manifest_text_.append(reinterpret_cast<const char*>(chunk.data()), chunk.size());
    return Unit{};
  }
  if (manifest_.files.empty()) MOTLEY_TRY_VOID(read_manifest_text());
  if (name != file_name_) MOTLEY_TRY_VOID(open_file(name));
  return file_->append(chunk);
}

Result<Unit> CheckpointImport::finish() {
  MOTLEY_TRY_VOID(close_file());
  MOTLEY_TRY_VOID(write_file_durably(fs_, temporary_ + "/" + kManifestName,
                                     std::as_bytes(std::span(manifest_text_))));
  MOTLEY_TRY_VOID(read_manifest(fs_, temporary_, checkpoint_));
  MOTLEY_TRY_VOID(remove_checkpoint(fs_, checkpoints_dir_, checkpoint_));
  MOTLEY_TRY_VOID(publish(fs_, checkpoints_dir_, checkpoint_));
  published_ = true;
  return Unit{};
}

Result<Unit> CheckpointImport::read_manifest_text() {
  MOTLEY_TRY(manifest_, manifest_from_text(manifest_text_));
  Bytes bytes(static_cast<int64_t>(manifest_text_.size()));
  for (const StoredFile& file : manifest_.files) bytes += Bytes(file.bytes);
  return check_room(fs_, checkpoints_dir_, bytes);
}

Result<Unit> CheckpointImport::open_file(const std::string& name) {
  MOTLEY_TRY_VOID(close_file());
  const auto stored = std::find_if(manifest_.files.begin(), manifest_.files.end(),
                                   [&](const StoredFile& file) { return file.name == name; });
  if (stored == manifest_.files.end())
    return fail(ErrorCode::kCorrupt, checkpoint_ + ": '" + name + "' is no file of it");
  MOTLEY_TRY(file_, SealedFile::create(fs_, temporary_, *stored, manifest_.tensors));
  file_name_ = name;
  return Unit{};
}

Result<Unit> CheckpointImport::close_file() {
  if (file_) MOTLEY_TRY_VOID(file_->finish());
  file_.reset();
  return Unit{};
}

}  // namespace motley
