#pragma once
// Saving and loading the state of a run (RELIABILITY.md, Checkpoints). Shards are safetensors files
// of the slices a rank owns; the manifest is the commit record. Loading reads exactly the slices a
// rank holds, whatever plan wrote them.
//
//   every rank                          rank 0, the committer
//   writer->snapshot(step)              (at the step boundary, all ranks at the same one)
//   ... trains on ...
//   if (writer->written())
//     send writer->report()        ->   commit(fs, dir, base, reports), then retain(fs, dir, keep,
//                                       epoch)
//
// Every snapshot ends in one report, a failed one too: the committer then abandons this save and
// training goes on.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "core/manifest.h"
#include "core/model.h"
#include "core/plan.h"
#include "core/result.h"

namespace motley {

/// A slice of a state tensor in this rank's memory, row-major.
struct StateView {
  std::string name;            ///< "weight/block.0.…", "adam_m/…", "adam_v/…"
  std::string dtype;           ///< "F32" or "F64"
  std::vector<int64_t> shape;  ///< of the logical tensor
  Slice slice;                 ///< what lies there
  std::span<std::byte> data;   ///< it, where host code reaches it; else empty, and it is reached by
  std::function<Result<Unit>(int64_t offset, std::span<std::byte> into)> read_far = {};
  std::function<Result<Unit>(int64_t offset, std::span<const std::byte> from)> write_far = {};
  /// Shards store the slice in pieces that begin at multiples of `piece` along `cut_dimension`, so
  /// that a rank that will hold a part of it reads little else; 0: in one.
  int cut_dimension = 0;
  int64_t piece = 0;

  int64_t bytes() const;
  /// Bytes [offset, …) of the slice, row-major. Fails as what it lies in does.
  Result<Unit> read(int64_t offset, std::span<std::byte> into) const;
  Result<Unit> write(int64_t offset, std::span<const std::byte> from) const;
};

/// What every rank tells the committer about its shard.
struct ShardReport {
  Epoch epoch{1};
  int rank = 0;
  int64_t step = 0;
  bool ok = false;
  bool finite = true;  ///< false, then not ok either: the state holds values that no training mends
  std::string error;
  StoredFile file;
  std::vector<StoredTensor> tensors;  ///< each with the slices in this file
};
std::string to_text(const ShardReport& report);
Result<ShardReport> shard_report_from_text(const std::string& text);

/// One rank's writer. snapshot() copies the owned slices into preallocated memory, hashing while
/// copying (the seal), and returns; a thread writes the shard to the temporary directory, hashes
/// again, compares, syncs. One save in flight. Called by one thread.
class ShardWriter {
 public:
  /// `owned`: parts of `views` this rank commits. Allocates the snapshot buffers now; the views'
  /// memory must outlive the writer. kInvalidSpec when this rank owns what no view holds.
  static Result<std::unique_ptr<ShardWriter>> create(FileSystem& fs, std::string checkpoints_dir,
                                                     Epoch epoch, int rank,
                                                     std::vector<StateView> views,
                                                     const std::vector<Ownership>& owners);
  /// Finishes what is being written.
  virtual ~ShardWriter() = default;

  /// False when the last save is still being written (the caller counts a skip).
  virtual bool ready() const = 0;
  /// At a step boundary, when ready(). Allocates nothing. A step is saved once an epoch. kIo when
  /// there is not enough free space for the whole checkpoint, kDiverged when the state holds a
  /// value that is not finite, or how reading a view failed: nothing is written, and report() says
  /// so at once.
  virtual Result<Unit> snapshot(int64_t step) = 0;
  /// True once the shard of the current snapshot is durable or has failed; then report() is due.
  virtual bool written() const = 0;
  virtual void wait() = 0;           ///< until written(); returns at once when nothing is in flight
  virtual ShardReport report() = 0;  ///< once per snapshot; makes the writer ready again
  /// What it keeps of memory for the state itself, all the time.
  virtual Bytes snapshot_bytes() const = 0;
  /// The file's whole content, for a committer on a host that does not see this rank's directory
  /// (transfer.h); from written() until the next snapshot.
  virtual std::span<const std::byte> shard_bytes() const = 0;
};

/// The committer (rank 0): checks epoch, that all ranks 0..n-1 are present and that slices tile
/// every tensor, writes and syncs the manifest, syncs the directory, renames it, syncs the parent.
/// `base` carries everything but tensors and files. Returns the directory's name. On failure the
/// save is abandoned: its temporary directory is removed, older checkpoints are untouched.
/// kNotPermitted when a newer attempt has been here.
Result<std::string> commit(FileSystem& fs, const std::string& checkpoints_dir, const Manifest& base,
                           const std::vector<ShardReport>& reports);

/// Removes the temporary directory of a save that will not be committed here: its shard was
/// streamed to another host, or the committer gave up.
Result<Unit> abandon(FileSystem& fs, const std::string& checkpoints_dir, int64_t step, Epoch epoch);

/// Removes checkpoints beyond the newest `keep` valid ones (at least 2 always stay), what was left
/// half removed, and abandoned saves of attempts before `live`: an attempt ends before the next one
/// begins, so nobody writes them any more. Saves of `live` and later are never touched. Called by
/// one rank of each host that keeps files of its own; that two do it in one directory is no harm.
Result<Unit> retain(FileSystem& fs, const std::string& checkpoints_dir, int keep, Epoch live);

struct FoundCheckpoint {
  std::string directory;  ///< name within checkpoints_dir
  Manifest manifest;
};
/// Whether an error of opening or loading makes a checkpoint a suspect, so that an older one is
/// taken: kCorrupt, or kIo, which may pass.
inline bool is_suspect(const Error& error) {
  return error.code == ErrorCode::kCorrupt || error.code == ErrorCode::kIo;
}

struct SuspectCheckpoint {
  std::string directory;  ///< name within checkpoints_dir
  Error error;            ///< names its path
};
/// Committed checkpoints, newest first: by epoch, then step, as an attempt may resume from an older
/// step. None when `checkpoints_dir` does not exist; kIo when it cannot be listed, which is not the
/// same. Directories without a valid manifest, or with a file missing or of another size, are
/// skipped; `suspects` (may be null) gets each. kUnsupported when the newest is of another version
/// of its format: going on from an older one would lose it.
Result<std::vector<FoundCheckpoint>> find_checkpoints(FileSystem& fs,
                                                      const std::string& checkpoints_dir,
                                                      std::vector<SuspectCheckpoint>* suspects);

/// The checkpoint of that name; kNotFound when there is none, kCorrupt, kIo or kUnsupported as
/// above.
Result<FoundCheckpoint> open_checkpoint(FileSystem& fs, const std::string& checkpoints_dir,
                                        const std::string& name);

/// Whether its weights are those of `model`, no more and no fewer, of the same shapes; kInvalidSpec
/// names one that is not. A rank that holds a part of the model sees no difference in the rest.
Result<Unit> check_model(const FoundCheckpoint& checkpoint, const ModelSpec& model);

/// Fills every view from a checkpoint, verifying the blocks it reads. kCorrupt names the bad file
/// and block, kIo a file that the disk does not give back: take the next older checkpoint (views
/// then hold a mixture). kInvalidSpec when the checkpoint is of another model. bytes_read (may be
/// null) counts what was read.
Result<Unit> load(FileSystem& fs, const std::string& checkpoints_dir,
                  const FoundCheckpoint& checkpoint, const std::vector<StateView>& views,
                  int64_t* bytes_read);

}  // namespace motley
