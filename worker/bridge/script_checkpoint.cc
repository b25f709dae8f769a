#include "worker/bridge/script_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/hash.h"
#include "core/json_fields.h"
#include "core/manifest_files.h"
#include "core/set_aside.h"
#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/store.h"

namespace motley {
namespace {

constexpr int64_t kLengthBytes = 8;

auto no_shard(const std::string& path, const std::string& why) {
  return fail(ErrorCode::kCorrupt, path + " is no safetensors file of a state: " + why);
}

/// The header of a shard, with its length in front.
Result<std::string> header_of(const ReadableFile& file, const std::string& path) {
  uint64_t length = 0;
  if (file.size() < Bytes(kLengthBytes)) return no_shard(path, "it is too short");
  MOTLEY_TRY_VOID(file.read_at(0, std::as_writable_bytes(std::span(&length, 1))));
  if (length >
      static_cast<uint64_t>(std::min(kMaxShardHeaderBytes, file.size().value() - kLengthBytes)))
    return no_shard(path, "its header is longer than it may be");
  std::string header(static_cast<size_t>(kLengthBytes) + length, '\0');
  MOTLEY_TRY_VOID(file.read_at(0, std::as_writable_bytes(std::span(header))));
  return header;
}

/// Where a tensor lies in its file, without hashes yet. What does not fit together is found when
/// the manifest is checked.
Result<StoredTensor> tensor_of(const std::string& name, const nlohmann::json& entry,
                               const StoredFile& file) {
  StoredTensor tensor;
  tensor.name = name;
  std::vector<int64_t> place;
  JsonFields fields(entry);
  fields.read("dtype", tensor.dtype).read("shape", tensor.shape).read("data_offsets", place);
  if (const auto read = fields.done(); !read) return no_shard(name, read.error().message);
  if (place.size() != 2 || place[0] < 0 || place[0] >= place[1] ||
      place[1] > file.bytes - file.header_bytes)
    return no_shard(name, "it lies outside of the file, or has no bytes");
  tensor.slices.push_back({.file = file.name,
                           .offset = file.header_bytes + place[0],
                           .bytes = place[1] - place[0],
                           .slice = whole(tensor.shape),
                           .block_hashes = {}});
  return tensor;
}

Result<Unit> hash_blocks(const ReadableFile& file, StoredTensor* tensor) {
  StoredSlice& slice = tensor->slices.front();
  const int64_t block_bytes = hash_block_bytes(tensor->shape, tensor->dtype);
  std::vector<std::byte> block;
  for (int64_t done = 0; done < slice.bytes; done += block_bytes) {
    block.resize(static_cast<size_t>(std::min(block_bytes, slice.bytes - done)));
    MOTLEY_TRY_VOID(file.read_at(slice.offset + done, block));
    slice.block_hashes.push_back(xxh3_128_hex(block.data(), block.size()));
  }
  return Unit{};
}

/// What a rank of ours would report of the shard in `directory`.
Result<ShardReport> report_on_shard(FileSystem& fs, const std::string& directory,
                                    const CheckpointName& name) {
  ShardReport report;
  report.epoch = name.epoch;
  report.step = name.step;
  report.ok = true;
  report.file.name = shard_file_name(Rank(0));
  const std::string path = directory + "/" + report.file.name;
  MOTLEY_TRY(const auto file, fs.open_within(directory, report.file.name));
  MOTLEY_TRY(const std::string header, header_of(*file, path));
  report.file.bytes = file->size().value();
  report.file.header_bytes = static_cast<int64_t>(header.size());
  report.file.header_hash = xxh3_128_hex(header);
  const auto entries = parse_json(std::string_view(header).substr(kLengthBytes));
  if (!entries || !entries->is_object()) return no_shard(path, "its header is no JSON object");
  for (const auto& [key, entry] : entries->items()) {
    if (key == "__metadata__") continue;
    MOTLEY_TRY(StoredTensor tensor, tensor_of(key, entry, report.file));
    MOTLEY_TRY_VOID(hash_blocks(*file, &tensor));
    report.tensors.push_back(std::move(tensor));
  }
  return report;
}

/// Why the checkpoint cannot be relied on.
Result<Unit> verify(FileSystem& fs, const std::string& directory, const Manifest& manifest) {
  for (const StoredFile& file : manifest.files)
    MOTLEY_TRY_VOID(verify_file(fs, directory, manifest, file));
  return Unit{};
}

}  // namespace

Result<std::string> commit_script(FileSystem& fs, const std::string& temporary, Manifest base,
                                  int keep, const Tell& tell) {
  const std::string checkpoints_dir = parent_directory(temporary);
  const std::string name = temporary.substr(temporary.rfind('/') + 1);
  const std::string checkpoint(without_prefix(name));
  CheckpointName parsed;
  if (name != temporary_directory_name(checkpoint) ||
      !parse_checkpoint_directory_name(checkpoint, &parsed))
    return fail(ErrorCode::kUsage, "'" + temporary + "' is not called .tmp-step-N.eATTEMPT");
  base.step = parsed.step;
  base.epoch = parsed.epoch;
  const auto report = report_on_shard(fs, temporary, parsed);
  if (!report) {
    (void)abandon(fs, checkpoints_dir, parsed.step, parsed.epoch);  // else litter to retain()
    return fail(report.error());
  }
  MOTLEY_TRY_VOID(commit(fs, checkpoints_dir, base, {*report}));
  if (const auto kept = retain(fs, checkpoints_dir, keep, parsed.epoch); !kept)
    tell(kept.error().message);
  return checkpoints_dir + "/" + checkpoint;
}

Result<std::string> newest_whole(FileSystem& fs, const std::string& checkpoints_dir,
                                 const Tell& tell) {
  const auto pass_over = [&](const std::string& name, const Error& error) {
    tell(error.message + "; trying an older checkpoint");
    if (judged(error) != ErrorCode::kCorrupt) return;  // it may be there again
    const auto aside = set_aside(fs, checkpoints_dir, name, error.message);
    if (!aside) tell(aside.error().message);
  };
  std::vector<SuspectCheckpoint> suspects;
  MOTLEY_TRY(const auto found, find_checkpoints(fs, checkpoints_dir, &suspects));
  for (const SuspectCheckpoint& suspect : suspects) pass_over(suspect.directory, suspect.error);
  for (const FoundCheckpoint& each : found) {
    const std::string path = checkpoints_dir + "/" + each.directory;
    const auto verified = verify(fs, path, each.manifest);
    if (verified) return path;
    pass_over(each.directory, verified.error());
  }
  MOTLEY_TRY(const auto aside, set_aside_in(fs, checkpoints_dir));
  if (suspects.empty() && found.empty() && aside.empty()) return std::string();
  return fail(ErrorCode::kCorrupt, "no checkpoint in " + checkpoints_dir +
                                       " is whole: restore one, or begin anew with --fresh");
}

}  // namespace motley
