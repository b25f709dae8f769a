#include "core/manifest_files.h"

#include <algorithm>

#include "core/hash.h"

namespace motley {
namespace {

class FileCheck {
 public:
  FileCheck(const ReadableFile& file, std::string path) : file_(file), path_(std::move(path)) {}

  Result<Unit> bytes(int64_t offset, int64_t count, const std::string& hash) {
    buffer_.resize(static_cast<size_t>(count));
    MOTLEY_TRY_VOID(file_.read_at(offset, buffer_));
    if (xxh3_128_hex(buffer_.data(), buffer_.size()) == hash) return Unit{};
    return fail(ErrorCode::kCorrupt,
                path_ + " does not match its checksum at byte " + std::to_string(offset));
  }

  Result<Unit> slice(const StoredTensor& tensor, const StoredSlice& slice) {
    const int64_t block_bytes = hash_block_bytes(tensor.shape, tensor.dtype);
    for (size_t i = 0; i < slice.block_hashes.size(); ++i) {
      const int64_t begin = static_cast<int64_t>(i) * block_bytes;
      const int64_t count = std::min(block_bytes, slice.bytes - begin);
      MOTLEY_TRY_VOID(bytes(slice.offset + begin, count, slice.block_hashes[i]));
    }
    return Unit{};
  }

 private:
  const ReadableFile& file_;
  const std::string path_;
  std::vector<std::byte> buffer_;
};

}  // namespace

Result<Unit> verify_file(FileSystem& fs, const std::string& directory, const Manifest& manifest,
                         const StoredFile& file) {
  const std::string path = directory + "/" + file.name;
  MOTLEY_TRY(const auto opened, fs.open_within(directory, file.name));
  if (opened->size() != Bytes(file.bytes))
    return fail(ErrorCode::kCorrupt, path + " has another size");
  FileCheck check(*opened, path);
  MOTLEY_TRY_VOID(check.bytes(0, file.header_bytes, file.header_hash));
  for (const StoredTensor& tensor : manifest.tensors)
    for (const StoredSlice& slice : tensor.slices)
      if (slice.file == file.name) MOTLEY_TRY_VOID(check.slice(tensor, slice));
  return Unit{};
}

}  // namespace motley
