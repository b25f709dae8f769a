#include "worker/program/placement.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace motley {

namespace {

int64_t aligned(int64_t bytes) {
  return (bytes + kSymbolAlignment - 1) / kSymbolAlignment * kSymbolAlignment;
}

/// What there is to know of a symbol that has its place, side by side in memory: of large models
/// there are thousands, all of which are looked at for each.
struct Placed {
  int64_t begin = 0, end = 0;  ///< bytes
  int first_use = 0, last_use = 0;

  bool alive_with(const Symbol& other) const {
    return first_use <= other.last_use && other.first_use <= last_use;
  }
};

/// The start of the smallest gap of at least `size` bytes between `placed` (by rising offset), or
/// the end of the last.
int64_t best_gap(const std::vector<Placed>& placed, const Symbol& symbol) {
  const int64_t size = aligned(symbol.size.value());
  int64_t best_start = -1;
  int64_t best_room = std::numeric_limits<int64_t>::max();
  int64_t end = 0;
  for (const Placed& other : placed) {
    if (!other.alive_with(symbol)) continue;
    const int64_t room = other.begin - end;
    if (room >= size && room < best_room) {
      best_room = room;
      best_start = end;
    }
    end = std::max(end, other.end);
  }
  return best_start >= 0 ? best_start : end;
}

}  // namespace

Bytes place_symbols(std::vector<Symbol>& symbols, Segment segment) {
  std::vector<Symbol*> waiting;
  for (Symbol& symbol : symbols)
    if (symbol.segment == segment && symbol.first_use >= 0) waiting.push_back(&symbol);
  // Equal sizes: the longest-lived first. Stable, so that the arena is the same on every machine.
  std::stable_sort(waiting.begin(), waiting.end(), [](const Symbol* a, const Symbol* b) {
    if (a->size != b->size) return a->size > b->size;
    return a->last_use - a->first_use > b->last_use - b->first_use;
  });

  std::vector<Placed> placed;  // by rising offset
  placed.reserve(waiting.size());
  int64_t arena = 0;
  for (Symbol* symbol : waiting) {
    const int64_t begin = best_gap(placed, *symbol);
    const Placed own{begin, begin + aligned(symbol->size.value()), symbol->first_use,
                     symbol->last_use};
    symbol->offset = Bytes(begin);
    arena = std::max(arena, own.end);
    const auto after =
        std::upper_bound(placed.begin(), placed.end(), own,
                         [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
    placed.insert(after, own);
  }
  return Bytes(arena);
}

}  // namespace motley
