#pragma once
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector.h"

namespace motley::cpu {
namespace {

/// Columns summed by one task: a cache line or two of each row.
inline constexpr int64_t kSumColumns = 64;
/// Rows added one after the other before pairs are formed.
inline constexpr int64_t kSumRows = 32;

/// Sums of `kSums` values over rows, for up to kSumColumns columns, in a tree that depends on the
/// number of rows alone: runs of kSumRows, then pairs of runs, pairs of pairs ...; keeps one sum a
/// level, as a binary counter does.
template <int kSums>
class RowTree {
 public:
  using Sums = float[kSums][kSumColumns];

  /// add(sums, row) adds the row's values to sums.
  template <class AddRow>
  const Sums& sum(int64_t rows, const AddRow& add) {
    int depth = 0;
    for (int64_t run = 0; run * kSumRows < rows; ++run) {
      std::memset(&level_[depth], 0, sizeof(Sums));
      const int64_t end = std::min(rows, (run + 1) * kSumRows);
      for (int64_t row = run * kSumRows; row < end; ++row) add(level_[depth], row);
      ++depth;
      for (int64_t pairs = run + 1; pairs % 2 == 0; pairs /= 2) join(--depth);
    }
    if (depth == 0) std::memset(&level_[depth++], 0, sizeof(Sums));
    while (depth > 1) join(--depth);
    return level_[0];
  }

 private:
  void join(int upper) {
    for (int s = 0; s < kSums; ++s)
      for (int64_t i = 0; i < kSumColumns; ++i) level_[upper - 1][s][i] += level_[upper][s][i];
  }

  Sums level_[40];
};

}  // namespace
}  // namespace motley::cpu
