#include "worker/data/corpus.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/check.h"
#include "core/hash.h"
#include "core/philox.h"
#include "core/spec/data_windows.h"

namespace motley {

namespace {

Result<Unit> append_file(const std::string& path, std::vector<uint8_t>* bytes) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);  // fails for folders and devices, too
  if (error) return fail(ErrorCode::kNotFound, "data file " + path + ": " + error.message());
  const size_t start = bytes->size();
  bytes->resize(start + size);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(bytes->data() + start), static_cast<std::streamsize>(size));
  if (!file) return fail(ErrorCode::kIo, "data file " + path + " cannot be read");
  return Unit{};
}

}  // namespace

Result<Corpus> Corpus::load(const DataSpec& data, int context) {
  MOTLEY_CHECK_LT(0, context);
  Corpus corpus;
  corpus.context_ = context;
  for (const std::string& path : data.files) MOTLEY_TRY_VOID(append_file(path, &corpus.bytes_));
  const Bytes size(static_cast<int64_t>(corpus.bytes_.size()));
  MOTLEY_TRY(const DataWindows windows, cut_windows(data, size, context));
  corpus.eval_windows_ = windows.eval;
  corpus.train_windows_ = windows.train;
  corpus.hash_ = xxh3_128_hex(corpus.bytes_.data(), corpus.bytes_.size());
  return corpus;
}

void Corpus::window(int64_t index, std::span<int32_t> out) const {
  const auto begin = bytes_.begin() + index * context_;
  std::copy(begin, begin + context_ + 1, out.begin());
}

void Corpus::train_samples(uint64_t seed, int64_t first, int count, std::span<int32_t> out) const {
  const size_t length = static_cast<size_t>(context_) + 1;
  MOTLEY_CHECK_EQ(out.size(), static_cast<size_t>(count) * length);
  for (int i = 0; i < count; ++i) {
    const int64_t position = first + i;
    const auto epoch = static_cast<uint32_t>(position / train_windows_);
    const auto place = static_cast<uint64_t>(position % train_windows_);
    const uint64_t index =
        permuted_index(seed, epoch, place, static_cast<uint64_t>(train_windows_));
    window(static_cast<int64_t>(index), out.subspan(static_cast<size_t>(i) * length, length));
  }
}

void Corpus::eval_samples(int64_t first, int count, std::span<int32_t> out) const {
  const size_t length = static_cast<size_t>(context_) + 1;
  MOTLEY_CHECK_EQ(out.size(), static_cast<size_t>(count) * length);
  for (int i = 0; i < count; ++i)
    window(train_windows_ + (first + i) % eval_windows_,
           out.subspan(static_cast<size_t>(i) * length, length));
}

}  // namespace motley
