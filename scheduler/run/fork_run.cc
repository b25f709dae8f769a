#include "scheduler/run/fork_run.h"

#include <algorithm>

#include "core/file_system.h"
#include "core/hash.h"
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

/// What the copy holds from `offset` on is what the manifest says.
Result<Unit> check_bytes(const ReadableFile& copy, int64_t offset, int64_t bytes,
                         const std::string& hash, const std::string& what) {
  std::vector<std::byte> data(static_cast<size_t>(bytes));
  MOTLEY_TRY_VOID(copy.read_at(offset, data));
  if (xxh3_128_hex(data.data(), data.size()) == hash) return Unit{};
  return fail(ErrorCode::kCorrupt, what + " does not match its checksum at byte " +
                                       std::to_string(offset) + ": take another --step");
}

Result<Unit> check_slice(const ReadableFile& copy, const StoredTensor& tensor,
                         const StoredSlice& slice, const std::string& what) {
  const int64_t block_bytes = hash_block_bytes(tensor.shape, tensor.dtype);
  for (size_t i = 0; i < slice.block_hashes.size(); ++i) {
    const int64_t begin = static_cast<int64_t>(i) * block_bytes;
    const int64_t bytes = std::min(block_bytes, slice.bytes - begin);
    MOTLEY_TRY_VOID(check_bytes(copy, slice.offset + begin, bytes, slice.block_hashes[i], what));
  }
  return Unit{};
}

/// A shard as it is now in `directory`; `original` is named in errors.
Result<Unit> check_shard(const Manifest& manifest, const StoredFile& file,
                         const std::string& directory, const std::string& original) {
  MOTLEY_TRY(const auto copy, real_file_system().open_within(directory, file.name));
  if (copy->size() != Bytes(file.bytes))
    return fail(ErrorCode::kCorrupt, original + " has another size: take another --step");
  MOTLEY_TRY_VOID(check_bytes(*copy, 0, file.header_bytes, file.header_hash, original));
  for (const StoredTensor& tensor : manifest.tensors)
    for (const StoredSlice& slice : tensor.slices)
      if (slice.file == file.name) MOTLEY_TRY_VOID(check_slice(*copy, tensor, slice, original));
  return Unit{};
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
    MOTLEY_TRY_VOID(check_shard(*manifest, file, to, from + "/" + file.name));
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

Result<RunDirectory> fork_run(const RunDirectory& from, const JobSpec& job, int64_t step) {
  if (job.is_program())
    return fail(ErrorCode::kUsage,
                "--step is for a model: a script's run goes on from its newest "
                "checkpoint alone; copy the one you want into a new run's "
                "checkpoints directory");
  const std::vector<CheckpointName> committed = from.committed(job);
  const auto found = std::find_if(committed.begin(), committed.end(),
                                  [&](const CheckpointName& name) { return name.step == step; });
  if (found == committed.end())
    return fail(ErrorCode::kNotFound, "run " + from.title() + " has no checkpoint of step " +
                                          std::to_string(step) +
                                          "; it has: " + steps_text(committed));
  return RunDirectory::create(
      job, [&](const RunDirectory::Draft& draft) { return fill_from(from, job, *found, draft); });
}

}  // namespace motley
