#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>

#include "core/check.h"
#include "core/hash.h"
#include "core/units.h"
#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/shard_layout.h"
#include "worker/checkpoint/store.h"

namespace motley {
namespace {

/// Of values all bits of whose exponent are set: infinite, or not a number.
template <class Bits>
bool all_finite(std::span<const std::byte> bytes, Bits exponent) {
  unsigned found = 0;
  for (size_t at = 0; at < bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof bits);
    found |= static_cast<unsigned>((bits & exponent) == exponent);
  }
  return found == 0;
}

bool all_finite(std::span<const std::byte> bytes, const std::string& dtype) {
  return dtype == "F64" ? all_finite<uint64_t>(bytes, 0x7ff0000000000000)
                        : all_finite<uint32_t>(bytes, 0x7f800000);
}

/// The shard file as an image in memory, and the seal of each of its blocks.
class SealedImage {
 public:
  static Result<std::unique_ptr<SealedImage>> allocate(std::vector<StateView> views,
                                                       ShardLayout layout) {
    auto image = std::make_unique<SealedImage>();
    // The parentheses touch all of it: the first snapshot is no slower than the others.
    image->bytes_.reset(new (std::nothrow) std::byte[static_cast<size_t>(layout.bytes)]());
    if (!image->bytes_)
      return fail(ErrorCode::kOutOfMemory, "no memory for the snapshot of a checkpoint (" +
                                               format_bytes(Bytes(layout.bytes)) + ")");
    std::memcpy(image->bytes_.get(), layout.header.data(), layout.header.size());
    for (const ShardEntry& entry : layout.entries)
      image->seals_.emplace_back(static_cast<size_t>(block_count(entry.bytes, entry.block_bytes)));
    image->views_ = std::move(views);
    image->layout_ = std::move(layout);
    return image;
  }

  /// Copies the state, hashing each block and looking at its values while it is in the cache.
  /// kDiverged naming the first tensor with one that is not finite.
  Result<Unit> take() {
    for (size_t e = 0; e < seals_.size(); ++e) {
      MOTLEY_TRY(const bool finite, copy_entry(layout_.entries[e], &seals_[e]));
      if (!finite)
        return fail(ErrorCode::kDiverged, views_[layout_.entries[e].view].name + " is not finite");
    }
    return Unit{};
  }

  /// Appends the image to `file`, after comparing each block with its seal.
  Result<Unit> write(WritableFile& file) const {
    MOTLEY_TRY_VOID(file.append(std::as_bytes(std::span(layout_.header))));
    for (size_t e = 0; e < seals_.size(); ++e) {
      const ShardEntry& entry = layout_.entries[e];
      for (size_t b = 0; b < seals_[e].size(); ++b) {
        const int64_t begin = static_cast<int64_t>(b) * entry.block_bytes;
        const auto block =
            bytes().subspan(static_cast<size_t>(entry.offset + begin),
                            static_cast<size_t>(std::min(entry.block_bytes, entry.bytes - begin)));
        if (xxh3_128(block.data(), block.size()) != seals_[e][b])
          return fail(ErrorCode::kCorrupt,
                      views_[entry.view].name + ": memory changed between snapshot and write");
        MOTLEY_TRY_VOID(file.append(block));
      }
    }
    return Unit{};
  }

  std::vector<StoredTensor> stored_tensors(const std::string& file) const {
    std::vector<StoredTensor> tensors;
    for (size_t e = 0; e < seals_.size(); ++e) {
      const ShardEntry& entry = layout_.entries[e];
      const StateView& view = views_[entry.view];
      // Slices of one tensor follow one another.
      if (tensors.empty() || tensors.back().name != view.name)
        tensors.push_back({view.name, view.dtype, view.shape, {}});
      StoredSlice stored{file, entry.offset, entry.bytes, entry.slice, {}};
      for (const Hash128& seal : seals_[e]) stored.block_hashes.push_back(hex(seal));
      tensors.back().slices.push_back(std::move(stored));
    }
    return tensors;
  }

  std::span<const std::byte> bytes() const {
    return {bytes_.get(), static_cast<size_t>(layout_.bytes)};
  }
  const ShardLayout& layout() const { return layout_; }

 private:
  /// Whether all values are finite.
  Result<bool> copy_entry(const ShardEntry& entry, std::vector<Hash128>* seals) {
    const StateView& view = views_[entry.view];
    const int64_t width = element_bytes(view.dtype);
    std::byte* const to = bytes_.get() + entry.offset;
    int64_t copied = 0;
    bool finite = true;
    for (const CopyRun& run : entry.runs) {
      int64_t from = run.from_offset * width;
      for (int64_t left = run.count * width; left > 0;) {
        const int64_t block = copied / entry.block_bytes * entry.block_bytes;
        const int64_t block_end = std::min(block + entry.block_bytes, entry.bytes);
        const int64_t count = std::min(left, block_end - copied);
        MOTLEY_TRY_VOID(view.read(from, {to + copied, static_cast<size_t>(count)}));
        copied += count;
        from += count;
        left -= count;
        if (copied != block_end) continue;
        const std::span<const std::byte> whole(to + block, static_cast<size_t>(block_end - block));
        (*seals)[static_cast<size_t>(block / entry.block_bytes)] =
            xxh3_128(whole.data(), whole.size());
        finite = finite && all_finite(whole, view.dtype);
      }
    }
    MOTLEY_CHECK_EQ(copied, entry.bytes);
    return finite;
  }

  std::vector<StateView> views_;
  ShardLayout layout_;
  std::unique_ptr<std::byte[]> bytes_;
  std::vector<std::vector<Hash128>> seals_;  ///< [entry][block]
};

class ThreadedShardWriter final : public ShardWriter {
 public:
  ThreadedShardWriter(FileSystem& fs, std::string checkpoints_dir, Epoch epoch, Rank rank,
                      std::unique_ptr<SealedImage> image)
      : fs_(fs),
        checkpoints_dir_(std::move(checkpoints_dir)),
        epoch_(epoch),
        rank_(rank),
        image_(std::move(image)),
        thread_([this] { run(); }) {}

  ~ThreadedShardWriter() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  bool ready() const override { return phase() == Phase::kIdle; }
  bool written() const override { return phase() == Phase::kWritten; }

  Result<Unit> snapshot(int64_t step) override {
    MOTLEY_CHECK(ready(), "a snapshot while the last one is in flight");
    auto taken = check_room(fs_, checkpoints_dir_, Bytes(image_->layout().checkpoint_bytes));
    if (taken) taken = image_->take();
    {
      const std::lock_guard lock(mutex_);
      step_ = step;
      phase_ = taken ? Phase::kWriting : Phase::kWritten;
      if (!taken) report_ = report_of(step, taken);
    }
    changed_.notify_all();
    return taken;
  }

  void wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return phase_ != Phase::kWriting; });
  }

  ShardReport report() override {
    const std::lock_guard lock(mutex_);
    MOTLEY_CHECK(phase_ == Phase::kWritten, "a report without a finished snapshot");
    phase_ = Phase::kIdle;
    return std::move(report_);
  }

  Bytes snapshot_bytes() const override {
    const ShardLayout& layout = image_->layout();
    return Bytes(layout.bytes - static_cast<int64_t>(layout.header.size()));
  }
  std::span<const std::byte> shard_bytes() const override { return image_->bytes(); }

 private:
  enum class Phase { kIdle, kWriting, kWritten };

  Phase phase() const {
    const std::lock_guard lock(mutex_);
    return phase_;
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closing_ || phase_ == Phase::kWriting; });
      if (phase_ != Phase::kWriting) return;
      const int64_t step = step_;
      lock.unlock();  // image_ is this thread's until the phase changes
      ShardReport report = report_of(step, write(step));
      lock.lock();
      report_ = std::move(report);
      phase_ = Phase::kWritten;
      changed_.notify_all();
    }
  }

  Result<Unit> write(int64_t step) const {
    const std::string directory =
        checkpoints_dir_ + "/" + temporary_directory_name(checkpoint_directory_name(step, epoch_));
    MOTLEY_TRY_VOID(fs_.make_directories(directory));
    MOTLEY_TRY(const auto file, fs_.create(directory + "/" + shard_file_name(rank_)));
    MOTLEY_TRY_VOID(image_->write(*file));
    MOTLEY_TRY_VOID(file->sync());
    return file->close();
  }

  ShardReport report_of(int64_t step, const Result<Unit>& durable) const {
    ShardReport report;
    report.epoch = epoch_;
    report.rank = rank_.value();
    report.step = step;
    report.ok = durable.has_value();
    if (!durable) {
      report.finite = durable.error().code != ErrorCode::kDiverged;
      report.error = durable.error().message;
      return report;
    }
    const ShardLayout& layout = image_->layout();
    report.file = {shard_file_name(rank_), layout.bytes, static_cast<int64_t>(layout.header.size()),
                   xxh3_128_hex(layout.header)};
    report.tensors = image_->stored_tensors(report.file.name);
    return report;
  }

  FileSystem& fs_;
  const std::string checkpoints_dir_;
  const Epoch epoch_;
  const Rank rank_;
  const std::unique_ptr<SealedImage> image_;  ///< the writer thread's while phase_ is kWriting

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  Phase phase_ = Phase::kIdle;
  int64_t step_ = 0;
  ShardReport report_;
  bool closing_ = false;

  std::thread thread_;  ///< last: starts when the rest is there
};

}  // namespace

Result<std::unique_ptr<ShardWriter>> ShardWriter::create(FileSystem& fs,
                                                         std::string checkpoints_dir, Epoch epoch,
                                                         int rank, std::vector<StateView> views,
                                                         const std::vector<Ownership>& owners) {
  MOTLEY_TRY(ShardLayout layout, lay_out_shard(views, owners, Rank(rank)));
  MOTLEY_TRY(auto image, SealedImage::allocate(std::move(views), std::move(layout)));
  MOTLEY_TRY_VOID(fs.make_directories(checkpoints_dir));
  return std::make_unique<ThreadedShardWriter>(fs, std::move(checkpoints_dir), epoch, Rank(rank),
                                               std::move(image));
}

}  // namespace motley
