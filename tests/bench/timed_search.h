#pragma once
// How long a search for a plan takes.

#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/median.h"
#include "core/plan.h"
#include "core/result.h"
#include "tests/bench/rows.h"

namespace motley {

struct TimedSearch {
  double seconds = 0;  ///< of this thread, the median
  Plan plan;
};

/// Of up to five searches, or those of two seconds; nothing, and a line on stderr, where there is
/// no plan.
template <class Search>
std::optional<TimedSearch> time_search(const std::string& name, const Search& search) {
  constexpr double kEnoughSeconds = 2;
  std::vector<double> seconds;
  Plan last;
  for (double total = 0; seconds.empty() || (seconds.size() < 5 && total < kEnoughSeconds);) {
    const double start = thread_seconds();
    Result<Plan> plan = search();
    seconds.push_back(thread_seconds() - start);
    total += seconds.back();
    if (!plan) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), plan.error().message.c_str());
      return std::nullopt;
    }
    last = *std::move(plan);
  }
  return TimedSearch{*median(seconds), std::move(last)};
}

}  // namespace motley
