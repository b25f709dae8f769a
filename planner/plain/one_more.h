#pragma once
// What a step would take with one device more: asked of every device that a plan leaves out, so
// what those it uses could take is counted once for all.

#include <optional>
#include <unordered_map>
#include <vector>

#include "planner/plain/grain_search.h"

namespace motley {

class OneMoreDevice {
 public:
  /// Both outlive it.
  OneMoreDevice(const GrainSearch& search, const Deal& chosen);

  /// The quickest step of those used and this one, all of them with grains; kNever if there is
  /// none. Of one that cannot compute these grains at all, the step without it.
  double step_seconds_with(size_t candidate);

 private:
  /// What those used can take within a bound.
  struct Taken {
    int64_t most = 0;       ///< grains
    int64_t whole = 0;      ///< the same without a hole below
    bool all = true;        ///< each can take some,
    bool all_whole = true;  ///< and a single one
  };
  const Taken& taken(size_t bound);
  std::optional<double> by_counting(size_t candidate);
  double reduction_with(size_t candidate);

  const GrainSearch& search_;
  std::vector<bool> used_;  ///< by candidate
  std::vector<bool> used_hosts_;
  int ranks_ = 0;  ///< with one more
  double reduction_among_used_ = 0;
  std::unordered_map<size_t, Taken> taken_;
  std::optional<double> without_;              ///< the step of those used alone
  std::unordered_map<int, double> reduction_;  ///< by the host of one more
};

}  // namespace motley
