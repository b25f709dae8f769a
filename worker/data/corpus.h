#pragma once
// Text as tokens, and which sample is whose. Position is one global index, independent of the plan.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/model.h"
#include "core/result.h"
#include "core/spec/job_spec.h"

namespace motley {

/// The concatenated bytes of the job's files, in the job's order, cut into windows of context + 1
/// tokens every `context` bytes. The last `held_out` share of the windows (at least one) is kept
/// for evaluation. Immutable; thread-safe.
class Corpus {
 public:
  /// kNotFound for a missing file; kInvalidSpec when there are fewer than two windows.
  static Result<Corpus> load(const DataSpec& data, int context);

  const std::string& hash() const { return hash_; }  ///< XXH3-128 of the bytes
  int64_t train_windows() const { return train_windows_; }
  int64_t eval_windows() const { return eval_windows_; }

  /// Training samples [first, first + count) of the endless global sequence: each epoch a fresh
  /// permutation from `seed`. out is [count, context + 1].
  void train_samples(uint64_t seed, int64_t first, int count, std::span<int32_t> out) const;
  /// Held-out samples, in order, wrapping round.
  void eval_samples(int64_t first, int count, std::span<int32_t> out) const;

 private:
  void window(int64_t index, std::span<int32_t> out) const;

  std::vector<uint8_t> bytes_;
  std::string hash_;
  int context_ = 0;
  int64_t train_windows_ = 0;
  int64_t eval_windows_ = 0;
};

}  // namespace motley
