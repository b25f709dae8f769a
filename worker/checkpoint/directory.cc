#include "worker/checkpoint/directory.h"

#include "core/units.h"

namespace motley {
namespace {

constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kTrash = ".trash-";
/// For headers, the manifest and what the file system itself needs.
constexpr Bytes kFreeSpaceMargin{16 << 20};

}  // namespace

std::string temporary_directory_name(std::string_view checkpoint) {
  return std::string(kTemporary).append(checkpoint);
}

std::string trash_directory_name(std::string_view checkpoint) {
  return std::string(kTrash).append(checkpoint);
}

std::string_view without_prefix(std::string_view name) {
  for (const std::string_view prefix : {kTemporary, kTrash}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

Result<Unit> check_room(FileSystem& fs, const std::string& checkpoints_dir, Bytes checkpoint) {
  const Bytes needed = checkpoint + kFreeSpaceMargin;
  MOTLEY_TRY(const Bytes available, fs.free_space(checkpoints_dir));
  if (available >= needed) return Unit{};
  return fail(ErrorCode::kIo, checkpoints_dir + ": a checkpoint needs " + format_bytes(needed) +
                                  ", " + format_bytes(available) +
                                  " are free; make room or set checkpoint.dir");
}

Result<Unit> write_file_durably(FileSystem& fs, const std::string& path,
                                std::span<const std::byte> content) {
  MOTLEY_TRY(const auto file, fs.create(path));
  MOTLEY_TRY_VOID(file->append(content));
  MOTLEY_TRY_VOID(file->sync());
  return file->close();
}

Result<Unit> publish(FileSystem& fs, const std::string& checkpoints_dir,
                     const std::string& checkpoint) {
  const std::string temporary = checkpoints_dir + "/" + temporary_directory_name(checkpoint);
  MOTLEY_TRY_VOID(fs.sync_directory(temporary));
  MOTLEY_TRY_VOID(fs.rename_new(temporary, checkpoints_dir + "/" + checkpoint));
  return fs.sync_directory(checkpoints_dir);
}

Result<Unit> remove_if_there(FileSystem& fs, const std::string& path) {
  auto removed = fs.remove_all(path);
  if (!removed && removed.error().code == ErrorCode::kNotFound) return Unit{};
  return removed;
}

Result<Unit> remove_checkpoint(FileSystem& fs, const std::string& checkpoints_dir,
                               const std::string& checkpoint) {
  const std::string trash = checkpoints_dir + "/" + trash_directory_name(checkpoint);
  const auto renamed = fs.rename_new(checkpoints_dir + "/" + checkpoint, trash);
  if (!renamed && renamed.error().code == ErrorCode::kNotFound) return Unit{};
  if (!renamed) return renamed;
  MOTLEY_TRY_VOID(fs.sync_directory(checkpoints_dir));
  return remove_if_there(fs, trash);
}

namespace {

Result<Manifest> try_manifest(FileSystem& fs, const std::string& directory,
                              const std::string& checkpoint) {
  MOTLEY_TRY(const auto file, fs.open_within(directory, kManifestName));
  if (file->size() > Bytes(kMaxManifestBytes))
    return fail(ErrorCode::kCorrupt, "manifest too large");
  std::string text(static_cast<size_t>(file->size().value()), '\0');
  MOTLEY_TRY_VOID(file->read_at(0, std::as_writable_bytes(std::span(text))));
  MOTLEY_TRY(Manifest manifest, manifest_from_text(text));
  if (checkpoint_directory_name(manifest.step, manifest.epoch) != checkpoint)
    return fail(ErrorCode::kCorrupt, "the manifest is of another checkpoint");
  for (const StoredFile& stored : manifest.files) {
    MOTLEY_TRY(const auto shard, fs.open_within(directory, stored.name));
    if (shard->size() != Bytes(stored.bytes))
      return fail(ErrorCode::kCorrupt, stored.name + " has " +
                                           std::to_string(shard->size().value()) + " of " +
                                           std::to_string(stored.bytes) + " bytes");
  }
  return manifest;
}

}  // namespace

ErrorCode judged(const Error& error) {
  const bool content = error.code == ErrorCode::kCorrupt || error.code == ErrorCode::kNotFound;
  return content ? ErrorCode::kCorrupt : ErrorCode::kIo;
}

Result<Manifest> read_manifest(FileSystem& fs, const std::string& directory,
                               const std::string& checkpoint) {
  auto manifest = try_manifest(fs, directory, checkpoint);
  if (manifest) return manifest;
  const Error& error = manifest.error();
  const bool of_another_version = error.code == ErrorCode::kUnsupported;
  return fail(of_another_version ? error.code : judged(error),
              "checkpoint " + directory + ": " + error.message);
}

}  // namespace motley
