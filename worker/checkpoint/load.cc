#include <algorithm>
#include <cstring>
#include <map>

#include "core/hash.h"
#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/store.h"

namespace motley {
namespace {

/// Verified reading of one checkpoint. Holds one block.
class BlockReader {
 public:
  BlockReader(FileSystem& fs, std::string directory, const Manifest& manifest)
      : fs_(fs), directory_(std::move(directory)), manifest_(manifest) {}

  /// Block `index` of a slice of `tensor`; valid until the next call.
  Result<std::span<const std::byte>> block(const StoredTensor& tensor, const StoredSlice& stored,
                                           int64_t index) {
    MOTLEY_TRY(const ReadableFile* const file, open(stored.file));
    const int64_t block_bytes = hash_block_bytes(tensor.shape, tensor.dtype);
    const int64_t begin = index * block_bytes;
    const int64_t bytes = std::min(block_bytes, stored.bytes - begin);
    MOTLEY_TRY_VOID(read(*file, stored.file, stored.offset + begin, bytes));
    if (xxh3_128_hex(buffer_.data(), buffer_.size()) !=
        stored.block_hashes[static_cast<size_t>(index)])
      return corrupt(stored.file, "block " + std::to_string(index) + " of " + tensor.name +
                                      " at byte " + std::to_string(stored.offset + begin) +
                                      " does not match its checksum");
    return std::span<const std::byte>(buffer_);
  }

  int64_t bytes_read() const { return bytes_read_; }

 private:
  tl::unexpected<Error> corrupt(const std::string& file, const std::string& what) const {
    return fail(ErrorCode::kCorrupt, directory_ + "/" + file + ": " + what);
  }

  /// Opens a file once and verifies its header.
  Result<const ReadableFile*> open(const std::string& name) {
    const auto [at, fresh] = files_.try_emplace(name);
    if (!fresh) return at->second.get();
    const auto stored = std::find_if(manifest_.files.begin(), manifest_.files.end(),
                                     [&](const StoredFile& file) { return file.name == name; });
    auto file = fs_.open_within(directory_, name);
    if (!file) return fail(judged(file.error()), file.error().message);
    at->second = std::move(*file);
    if (at->second->size() != Bytes(stored->bytes)) return corrupt(name, "has another size");
    MOTLEY_TRY_VOID(read(*at->second, name, 0, stored->header_bytes));
    if (xxh3_128_hex(buffer_.data(), buffer_.size()) != stored->header_hash)
      return corrupt(name, "its header does not match its checksum");
    return at->second.get();
  }

  Result<Unit> read(const ReadableFile& file, const std::string& name, int64_t offset,
                    int64_t bytes) {
    buffer_.resize(static_cast<size_t>(bytes));
    if (const auto done = file.read_at(offset, buffer_); !done)
      return fail(judged(done.error()), directory_ + "/" + name + ": " + done.error().message);
    bytes_read_ += bytes;
    return Unit{};
  }

  FileSystem& fs_;
  std::string directory_;
  const Manifest& manifest_;
  std::map<std::string, std::unique_ptr<ReadableFile>> files_;
  std::vector<std::byte> buffer_;
  int64_t bytes_read_ = 0;
};

/// Copies what `stored`, a slice of `tensor`, and `view` have in common, reading each block of it
/// once.
Result<Unit> copy_common(BlockReader& reader, const StoredTensor& tensor, const StoredSlice& stored,
                         const StateView& view) {
  const int64_t width = element_bytes(view.dtype);
  const int64_t block_bytes = hash_block_bytes(tensor.shape, tensor.dtype);
  std::span<const std::byte> block;
  int64_t block_index = -1;
  for (const CopyRun& run : copy_runs(stored.slice, view.slice)) {
    int64_t from = run.from_offset * width;
    int64_t to = run.to_offset * width;
    for (int64_t left = run.count * width; left > 0;) {
      if (from / block_bytes != block_index) {
        block_index = from / block_bytes;
        MOTLEY_TRY(block, reader.block(tensor, stored, block_index));
      }
      const int64_t within = from % block_bytes;
      const int64_t count = std::min(left, static_cast<int64_t>(block.size()) - within);
      MOTLEY_TRY_VOID(
          view.write(to, block.subspan(static_cast<size_t>(within), static_cast<size_t>(count))));
      from += count;
      to += count;
      left -= count;
    }
  }
  return Unit{};
}

auto of_another_model(const FoundCheckpoint& checkpoint, const std::string& how) {
  return fail(ErrorCode::kInvalidSpec,
              "checkpoint " + checkpoint.directory + " is of another model: " + how);
}

}  // namespace

int64_t StateView::bytes() const { return slice.elements() * element_bytes(dtype); }

Result<Unit> StateView::read(int64_t offset, std::span<std::byte> into) const {
  if (read_far) return read_far(offset, into);
  std::memcpy(into.data(), data.data() + offset, into.size());
  return Unit{};
}

Result<Unit> StateView::write(int64_t offset, std::span<const std::byte> from) const {
  if (write_far) return write_far(offset, from);
  std::memcpy(data.data() + offset, from.data(), from.size());
  return Unit{};
}

Result<Unit> check_model(const FoundCheckpoint& checkpoint, const ModelSpec& model) {
  constexpr std::string_view kKind = "weight/";
  std::map<std::string_view, const StoredTensor*> stored;
  for (const StoredTensor& tensor : checkpoint.manifest.tensors)
    if (tensor.name.starts_with(kKind))
      stored[std::string_view(tensor.name).substr(kKind.size())] = &tensor;
  for (const LogicalTensor& tensor : logical_tensors(model)) {
    const auto found = stored.find(tensor.name);
    if (found == stored.end()) return of_another_model(checkpoint, "it lacks " + tensor.name);
    if (found->second->shape != tensor.shape)
      return of_another_model(checkpoint, tensor.name + " has another shape in it");
    stored.erase(found);
  }
  if (stored.empty()) return Unit{};
  return of_another_model(checkpoint, "this one lacks " + std::string(stored.begin()->first));
}

Result<Unit> load(FileSystem& fs, const std::string& checkpoints_dir,
                  const FoundCheckpoint& checkpoint, const std::vector<StateView>& views,
                  int64_t* bytes_read) {
  std::map<std::string_view, const StoredTensor*> tensors;
  for (const StoredTensor& tensor : checkpoint.manifest.tensors) tensors[tensor.name] = &tensor;
  BlockReader reader(fs, checkpoints_dir + "/" + checkpoint.directory, checkpoint.manifest);
  for (const StateView& view : views) {
    const auto found = tensors.find(view.name);
    if (found == tensors.end() || found->second->shape != view.shape ||
        found->second->dtype != view.dtype)
      return of_another_model(checkpoint, "it lacks " + view.name + " of the same shape and type");
    for (const StoredSlice& stored : found->second->slices)
      MOTLEY_TRY_VOID(copy_common(reader, *found->second, stored, view));
  }
  if (bytes_read) *bytes_read = reader.bytes_read();
  return Unit{};
}

}  // namespace motley
