#include "worker/program/final_gradients.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

#include "core/check.h"

namespace motley {

namespace {

/// Bytes [begin, end) of the gradients and the last instruction that uses them.
struct LastUse {
  int64_t begin = 0, end = 0;
  int instruction = 0;
};

/// In their order; of one instruction the higher first, as backward passes go down the parameters.
std::vector<LastUse> last_uses(const std::vector<Symbol>& symbols) {
  std::map<int64_t, LastUse> by_begin;
  for (const Symbol& symbol : symbols) {
    if (symbol.segment != Segment::kGradients || symbol.first_use < 0) continue;
    if (symbol.size == Bytes(0)) continue;
    const int64_t begin = symbol.offset.value(), end = begin + symbol.size.value();
    LastUse& use = by_begin.try_emplace(begin, LastUse{begin, end, 0}).first->second;
    MOTLEY_CHECK_EQ(use.end, end);
    use.instruction = std::max(use.instruction, symbol.last_use);
  }
  std::vector<LastUse> uses;
  for (const auto& [begin, use] : by_begin) {
    if (!uses.empty()) MOTLEY_CHECK_LE(uses.back().end, begin);
    uses.push_back(use);
  }
  std::sort(uses.begin(), uses.end(), [](const LastUse& a, const LastUse& b) {
    return a.instruction != b.instruction ? a.instruction < b.instruction : a.begin > b.begin;
  });
  return uses;
}

/// Runs [begin, end) that do not touch, by their begin.
using Runs = std::map<int64_t, int64_t>;

/// Adds a run that overlaps none; returns it with those it touched, now one.
Runs::iterator add_run(Runs& runs, int64_t begin, int64_t end) {
  auto after = runs.lower_bound(begin);
  if (after != runs.end() && after->first == end) {
    end = after->second;
    after = runs.erase(after);
  }
  if (after != runs.begin()) {
    const auto before = std::prev(after);
    if (before->second == begin) {
      before->second = end;
      return before;
    }
  }
  return runs.emplace_hint(after, begin, end);
}

}  // namespace

std::vector<FinalGradients> final_gradients(const std::vector<Symbol>& symbols, Bytes least) {
  std::vector<FinalGradients> found;
  Runs waiting;
  size_t last = 0;
  const auto take = [&](Runs::iterator run) {
    found.push_back({last, Bytes(run->first), Bytes(run->second - run->first)});
    return waiting.erase(run);
  };
  for (const LastUse& use : last_uses(symbols)) {
    last = static_cast<size_t>(use.instruction);
    const auto run = add_run(waiting, use.begin, use.end);
    if (run->second - run->first >= least.value()) take(run);
  }
  for (auto run = waiting.begin(); run != waiting.end();) run = take(run);
  return found;
}

std::vector<NeededWeights> needed_weights(const std::vector<Symbol>& symbols, size_t backward,
                                          Bytes least) {
  std::vector<NeededWeights> needed;
  for (const Symbol& symbol : symbols)
    if (symbol.segment == Segment::kParameters && symbol.first_use >= 0 &&
        symbol.first_use < static_cast<int>(backward) && symbol.size > Bytes(0))
      needed.push_back({static_cast<size_t>(symbol.first_use), symbol.offset, symbol.size});
  std::stable_sort(
      needed.begin(), needed.end(),
      [](const NeededWeights& a, const NeededWeights& b) { return a.before < b.before; });
  Bytes together(0);
  size_t before = 0;
  for (NeededWeights& one : needed) {
    if (together == Bytes(0)) before = one.before;
    one.before = before;
    together += one.size;
    if (together >= least) together = Bytes(0);
  }
  return needed;
}

}  // namespace motley
