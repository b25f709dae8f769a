#pragma once
// Trainings small enough for a test: a tiny GPT on this repository's words, on paced devices under
// the virtual clock, ranks as threads of this process.

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/attempt.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_device.h"
#include "worker/train/reporter.h"
#include "worker/train/trainer.h"

namespace motley::testing {

/// A replica cut by hand: its stages in order, each with as many ranks as shares.
struct SmallReplica {
  struct Stage {
    int layers = 0;  ///< of the model's layers + 2
    std::vector<double> shares = {1.0};
    std::vector<Recompute> recompute = {};
    Precision precision = Precision::kAuto;  ///< kAuto: that of the run
  };
  std::vector<Stage> stages;
  int grains = 1;
  int micro_batch_grains = 1;
};

ModelSpec tiny_gpt();

struct SmallRun {
  std::vector<int> grains = {4};  ///< of each rank; their sum is the global batch over grain
  int grain = 2;
  int micro_batch_grains = 1;
  std::vector<double> speeds = {};  ///< of each rank's device; default: all 1
  Numerics numerics = Numerics::kFast;
  Precision precision = Precision::kFp32;
  ModelSpec model = tiny_gpt();
  /// Instead of `grains` and `micro_batch_grains`; ranks count through replicas and stages.
  std::vector<SmallReplica> replicas = {};
  double lr = 3e-3;
  int samples_missing = 0;      ///< from the last grain of a step
  std::vector<int> hosts = {};  ///< number of each rank's; default: all on one
  CodecSpec compress = {};      ///< between hosts
  int across = 1;               ///< hosts average every so many steps
  bool shard_optimizer = false;
  bool host_optimizer = false;
  int64_t steps = 10;
  int64_t save_every = 0;
  EvalSpec eval = {};
  DeviceKind device = test_device();
};

/// The attempt of such a run in `run_dir`, with data written beside it unless there is some.
Attempt small_attempt(const SmallRun& run, const std::string& run_dir, Epoch epoch = Epoch(1));

/// Keeps what ranks report. Thread-safe.
class Recorder {
 public:
  struct Account {
    std::map<int64_t, StepReport> steps;
    std::vector<SavedReport> saved;  ///< what was committed
    std::vector<SkippedReport> skipped;
    std::vector<EvaluatedReport> evaluated;
    std::vector<std::string> phases;
  };
  /// A reporter for one rank, which lives as long as this.
  Reporter& of(int rank);
  const Account& account(int rank) const { return accounts_.at(rank); }
  /// Rank 0's losses by step, as bits.
  std::map<int64_t, uint64_t> loss_bits() const;

 private:
  std::mutex mutex_;
  std::map<int, Account> accounts_;
  std::vector<std::unique_ptr<Reporter>> reporters_;
};

/// Called on every rank after each step; an error is that rank's death.
using AtStep = std::function<Result<Unit>(int rank, int64_t step, ControlWishes& wishes)>;
/// The file system a rank sees; nothing: the real one.
using FileSystemOf = std::function<FileSystem&(int rank)>;

/// Runs the attempt with its ranks as threads; rank 0's outcome.
Result<TrainOutcome> run_small(const Attempt& attempt, Recorder& recorder,
                               const AtStep& at_step = nullptr,
                               const FileSystemOf& file_system_of = nullptr);

/// What a rank of an attempt with `trace` has written: an array of events.
nlohmann::json trace_of(const Attempt& attempt, int rank);

/// Another machine's file system: everything lies beneath `root`.
class RootedFileSystem : public FileSystem {
 public:
  explicit RootedFileSystem(std::string root) : root_(std::move(root)) {}

  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override;
  Result<std::unique_ptr<ReadableFile>> open(const std::string& path) override;
  Result<std::unique_ptr<ReadableFile>> open_within(const std::string& directory,
                                                    const std::string& name) override;
  Result<Unit> make_directories(const std::string& path) override;
  Result<Unit> sync_directory(const std::string& path) override;
  Result<Unit> rename_new(const std::string& from, const std::string& to) override;
  Result<Unit> rename_over(const std::string& from, const std::string& to) override;
  Result<Unit> remove_all(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
  bool exists(const std::string& path) override;
  Result<Bytes> free_space(const std::string& path) override;

 private:
  std::string root_;
};

}  // namespace motley::testing
