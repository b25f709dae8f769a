#include "tests/unit/worker/checkpoint/saved_run.h"

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

Result<std::string> save(FileSystem& fs, int64_t step, Epoch epoch, int keep) {
  SmallState state;
  state.fill(step);
  std::vector<ShardReport> reports;
  for (int rank = 0; rank < 2; ++rank) {
    MOTLEY_TRY(const auto writer, ShardWriter::create(fs, kCheckpoints, epoch, rank, state.views(),
                                                      SmallState::owners()));
    (void)writer->snapshot(step);  // the report says how it went
    writer->wait();
    reports.push_back(writer->report());
  }
  Manifest base;
  base.job = "small";
  base.step = step;
  base.epoch = epoch;
  auto committed = commit(fs, kCheckpoints, base, reports);
  if (committed) (void)retain(fs, kCheckpoints, keep, epoch);
  return committed;
}

Result<bool> holds_its_step(FileSystem& fs, const FoundCheckpoint& checkpoint) {
  SmallState state;
  state.fill(-1);
  MOTLEY_TRY_VOID(load(fs, kCheckpoints, checkpoint, state.views(), nullptr));
  return state.is_of(checkpoint.manifest.step);
}

}  // namespace motley::testing
