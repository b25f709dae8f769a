#pragma once
// A run of two ranks with a small state, and its saves, for the tests of this folder.

#include <string>
#include <vector>

#include "worker/checkpoint/store.h"

namespace motley::testing {

inline const std::string kCheckpoints = "/runs/small/1/checkpoints";

/// The state of a step is a function of the step, so that a loaded one can be judged alone.
class SmallState {
 public:
  SmallState();
  SmallState(const SmallState&) = delete;

  void fill(int64_t step);
  bool is_of(int64_t step) const;
  const std::vector<StateView>& views() const { return views_; }
  /// Two ranks; every tensor is cut, one of them across its rows.
  static std::vector<Ownership> owners();

 private:
  std::vector<float> weights_;
  std::vector<double> moments_;
  std::vector<StateView> views_;
};

/// Both ranks save `step` one after the other, rank 0 commits and cleans up. A failure anywhere is
/// handled as a run does: the save is given up. Returns commit's answer.
Result<std::string> save(FileSystem& fs, int64_t step, Epoch epoch, int keep = 2);

/// The same with rank 1 on a host that shares nothing: its shard is streamed to `fs`.
Result<std::string> save_from_two_hosts(FileSystem& fs, int64_t step, Epoch epoch);

/// What find_checkpoints finds there; a failure is the test's.
std::vector<FoundCheckpoint> found_in(FileSystem& fs,
                                      std::vector<SuspectCheckpoint>* suspects = nullptr,
                                      const std::string& directory = kCheckpoints);

/// Loads the checkpoint; true when it holds exactly the state of its step.
Result<bool> holds_its_step(FileSystem& fs, const FoundCheckpoint& checkpoint);

}  // namespace motley::testing
