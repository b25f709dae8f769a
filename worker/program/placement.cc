#include "worker/program/placement.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace motley {

namespace {

int64_t aligned(int64_t bytes) {
  return (bytes + kSymbolAlignment - 1) / kSymbolAlignment * kSymbolAlignment;
}

bool alive_together(const Symbol& a, const Symbol& b) {
  return a.first_use <= b.last_use && b.first_use <= a.last_use;
}

/// The start of the smallest gap of at least `size` bytes between `placed` (by rising offset), or
/// the end of the last.
int64_t best_gap(const std::vector<const Symbol*>& placed, const Symbol& symbol) {
  const int64_t size = aligned(symbol.size.value());
  int64_t best_start = -1;
  int64_t best_room = std::numeric_limits<int64_t>::max();
  int64_t end = 0;
  for (const Symbol* other : placed) {
    if (!alive_together(*other, symbol)) continue;
    const int64_t room = other->offset.value() - end;
    if (room >= size && room < best_room) {
      best_room = room;
      best_start = end;
    }
    end = std::max(end, other->offset.value() + aligned(other->size.value()));
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

  std::vector<const Symbol*> placed;  // by rising offset
  placed.reserve(waiting.size());
  int64_t arena = 0;
  for (Symbol* symbol : waiting) {
    symbol->offset = Bytes(best_gap(placed, *symbol));
    arena = std::max(arena, symbol->offset.value() + aligned(symbol->size.value()));
    const auto after =
        std::upper_bound(placed.begin(), placed.end(), symbol,
                         [](const Symbol* a, const Symbol* b) { return a->offset < b->offset; });
    placed.insert(after, symbol);
  }
  return Bytes(arena);
}

}  // namespace motley
