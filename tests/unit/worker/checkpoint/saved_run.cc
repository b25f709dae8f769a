#include "tests/unit/worker/checkpoint/saved_run.h"

#include <gtest/gtest.h>

#include "tests/support/fault_file_system.h"
#include "worker/checkpoint/transfer.h"

namespace motley::testing {
namespace {

const std::vector<int64_t> kMatrix{6, 10};
const std::vector<int64_t> kVector{7};

double value_of(int64_t step, size_t index) {
  return static_cast<double>(step) + static_cast<double>(index) / 1024;
}

}  // namespace

SmallState::SmallState() : weights_(67), moments_(67) {
  const auto view = [&](const std::string& name, auto& buffer, const std::string& dtype) {
    const auto bytes = std::as_writable_bytes(std::span(buffer));
    const size_t width = sizeof(buffer[0]);
    views_.push_back(
        {name + "/matrix", dtype, kMatrix, whole(kMatrix), bytes.subspan(0, 60 * width)});
    views_.push_back({name + "/vector", dtype, kVector, whole(kVector), bytes.subspan(60 * width)});
  };
  view("weight", weights_, "F32");
  view("adam_m", moments_, "F64");
}

void SmallState::fill(int64_t step) {
  for (size_t i = 0; i < weights_.size(); ++i) {
    weights_[i] = static_cast<float>(value_of(step, i));
    moments_[i] = value_of(step, i + 100);
  }
}

bool SmallState::is_of(int64_t step) const {
  SmallState expected;
  expected.fill(step);
  return expected.weights_ == weights_ && expected.moments_ == moments_;
}

std::vector<Ownership> SmallState::owners() {
  return {{"matrix", {{0, 0}, {6, 3}}, Rank(1)},
          {"matrix", {{0, 3}, {2, 7}}, Rank(0)},
          {"matrix", {{2, 3}, {4, 7}}, Rank(1)},
          {"vector", {{0}, {5}}, Rank(0)},
          {"vector", {{5}, {2}}, Rank(1)}};
}

namespace {

using WriterPtr = std::unique_ptr<ShardWriter>;

/// One rank's part up to its report.
Result<WriterPtr> write_shard(FileSystem& fs, SmallState& state, int64_t step, Epoch epoch,
                              int rank) {
  state.fill(step);
  MOTLEY_TRY(auto writer, ShardWriter::create(fs, kCheckpoints, epoch, rank, state.views(),
                                              SmallState::owners()));
  (void)writer->snapshot(step);  // the report says how it went
  writer->wait();
  return writer;
}

Result<std::string> commit_and_retain(FileSystem& fs, int64_t step, Epoch epoch, int keep,
                                      const std::vector<ShardReport>& reports) {
  Manifest base;
  base.job = "small";
  base.step = step;
  base.epoch = epoch;
  auto committed = commit(fs, kCheckpoints, base, reports);
  if (committed) (void)retain(fs, kCheckpoints, keep, epoch);
  return committed;
}

}  // namespace

Result<std::string> save(FileSystem& fs, int64_t step, Epoch epoch, int keep) {
  SmallState state;
  std::vector<ShardReport> reports;
  for (int rank = 0; rank < 2; ++rank) {
    MOTLEY_TRY(const auto writer, write_shard(fs, state, step, epoch, rank));
    reports.push_back(writer->report());
  }
  return commit_and_retain(fs, step, epoch, keep, reports);
}

Result<std::string> save_from_two_hosts(FileSystem& fs, int64_t step, Epoch epoch) {
  SmallState state;
  FaultFileSystem distant;
  MOTLEY_TRY(const auto first, write_shard(fs, state, step, epoch, 0));
  MOTLEY_TRY(const auto second, write_shard(distant, state, step, epoch, 1));
  std::vector<ShardReport> reports{first->report(), second->report()};
  const auto streamed = [&]() -> Result<Unit> {
    MOTLEY_TRY(const auto shard, receive_shard(fs, kCheckpoints, reports[1]));
    const auto bytes = second->shard_bytes();
    MOTLEY_TRY_VOID(shard->append(bytes.first(bytes.size() / 2)));
    MOTLEY_TRY_VOID(shard->append(bytes.subspan(bytes.size() / 2)));
    return shard->finish();
  }();
  reports[1].ok = streamed.has_value();
  return commit_and_retain(fs, step, epoch, 2, reports);
}

std::vector<FoundCheckpoint> found_in(FileSystem& fs, std::vector<SuspectCheckpoint>* suspects,
                                      const std::string& directory) {
  auto found = find_checkpoints(fs, directory, suspects);
  EXPECT_TRUE(found) << found.error().to_string();
  return found ? std::move(*found) : std::vector<FoundCheckpoint>();
}

Result<bool> holds_its_step(FileSystem& fs, const FoundCheckpoint& checkpoint) {
  SmallState state;
  state.fill(-1);
  MOTLEY_TRY_VOID(load(fs, kCheckpoints, checkpoint, state.views(), nullptr));
  return state.is_of(checkpoint.manifest.step);
}

}  // namespace motley::testing
