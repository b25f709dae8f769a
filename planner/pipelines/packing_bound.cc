#include "planner/pipelines/packing_bound.h"

#include <cstddef>

namespace motley {
namespace {

constexpr double kZero = 1e-9;
/// Pivots, for each row, by which the most is to be gained; from then on Bland's rule, which ends.
constexpr size_t kSteepPivots = 20;

/// One row for each group and one for what is maximised; one column for each set, for what is left
/// of each group, and the right side.
class Tableau {
 public:
  Tableau(const std::vector<std::vector<int>>& needs, const std::vector<int>& worth,
          const std::vector<int>& there)
      : sets_(needs.size()), groups_(there.size()), columns_(sets_ + groups_ + 1) {
    rows_.assign(groups_ + 1, std::vector<double>(columns_, 0.0));
    for (size_t g = 0; g < groups_; ++g) {
      for (size_t set = 0; set < sets_; ++set) rows_[g][set] = needs[set][g];
      rows_[g][sets_ + g] = 1;
      rows_[g].back() = there[g];
      basis_.push_back(sets_ + g);
    }
    for (size_t set = 0; set < sets_; ++set) rows_[groups_][set] = -worth[set];
  }

  FractionalPacking solve() {
    size_t pivots = 0;
    for (size_t enters = steepest(); enters < columns_ - 1; enters = entering(++pivots))
      pivot(leaving(enters), enters);
    FractionalPacking packing{rows_[groups_].back(), std::vector<double>(sets_, 0.0)};
    for (size_t g = 0; g < groups_; ++g)
      if (basis_[g] < sets_) packing.copies[basis_[g]] = rows_[g].back();
    return packing;
  }

 private:
  size_t entering(size_t pivots) const {
    return pivots < kSteepPivots * rows_.size() ? steepest() : first();
  }

  size_t steepest() const {
    const std::vector<double>& gains = rows_[groups_];
    size_t best = columns_ - 1;
    for (size_t column = 0; column + 1 < columns_; ++column)
      if (gains[column] <= -kZero && (best + 1 == columns_ || gains[column] < gains[best]))
        best = column;
    return best;
  }

  size_t first() const {
    size_t column = 0;
    while (column + 1 < columns_ && rows_[groups_][column] > -kZero) ++column;
    return column;
  }

  /// Every set needs a device, so that some row has a part in it.
  size_t leaving(size_t enters) const {
    size_t row = groups_;
    for (size_t g = 0; g < groups_; ++g) {
      if (rows_[g][enters] <= kZero) continue;
      if (row == groups_) row = g;
      const double own = rows_[g].back() * rows_[row][enters];
      const double other = rows_[row].back() * rows_[g][enters];
      if (own < other || (own == other && basis_[g] < basis_[row])) row = g;
    }
    return row;
  }

  void pivot(size_t row, size_t column) {
    const double by = rows_[row][column];
    for (double& value : rows_[row]) value /= by;
    for (size_t other = 0; other < rows_.size(); ++other) {
      const double times = rows_[other][column];
      if (other == row || times == 0) continue;
      for (size_t i = 0; i < columns_; ++i) rows_[other][i] -= times * rows_[row][i];
    }
    basis_[row] = column;
  }

  const size_t sets_, groups_, columns_;
  std::vector<std::vector<double>> rows_;
  std::vector<size_t> basis_;  ///< the column that each row stands for
};

}  // namespace

FractionalPacking pack_fractions(const std::vector<std::vector<int>>& needs,
                                 const std::vector<int>& worth, const std::vector<int>& there) {
  return Tableau(needs, worth, there).solve();
}

}  // namespace motley
