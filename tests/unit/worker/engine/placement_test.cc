#include "worker/program/placement.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "worker/engine/stage.h"

namespace motley {
namespace {

bool overlap_in_time(const Symbol& a, const Symbol& b) {
  return a.first_use <= b.last_use && b.first_use <= a.last_use;
}

bool overlap_in_memory(const Symbol& a, const Symbol& b) {
  return a.offset < b.offset + b.size && b.offset < a.offset + a.size;
}

bool placed(const Symbol& symbol) {
  return symbol.segment == Segment::kActivations && symbol.first_use >= 0;
}

int64_t rounded(Bytes size) { return (size.value() + 63) / 64 * 64; }

/// What every placement must satisfy; the text names what does not hold.
std::string fault_of(const std::vector<Symbol>& symbols, Bytes arena) {
  int64_t separate = 0;
  for (const Symbol& a : symbols) {
    if (!placed(a)) continue;
    separate += rounded(a.size);
    if (a.offset.value() % kSymbolAlignment != 0) return "an offset is not aligned";
    if (a.offset.value() < 0 || a.offset + a.size > arena) return "a buffer leaves the arena";
    for (const Symbol& b : symbols)
      if (&a != &b && placed(b) && overlap_in_time(a, b) && overlap_in_memory(a, b))
        return "two live buffers overlap";
  }
  return arena.value() > separate ? "sharing costs more than it saves" : "";
}

/// The most bytes alive at one instruction: no arena can be smaller.
int64_t most_alive(const std::vector<Symbol>& symbols) {
  int64_t most = 0;
  for (const Symbol& at : symbols) {
    if (!placed(at)) continue;
    int64_t alive = 0;
    for (const Symbol& other : symbols)
      if (placed(other) && other.first_use <= at.first_use && at.first_use <= other.last_use)
        alive += rounded(other.size);
    most = std::max(most, alive);
  }
  return most;
}

RC_GTEST_PROP(Placement, LiveBuffersNeverOverlap, ()) {
  std::vector<Symbol> symbols(*rc::gen::inRange<size_t>(0, 40));
  for (Symbol& symbol : symbols) {
    symbol.size = Bytes(*rc::gen::inRange(0, 1000));
    symbol.first_use = *rc::gen::inRange(-1, 30);
    symbol.last_use = symbol.first_use + (symbol.first_use < 0 ? 0 : *rc::gen::inRange(0, 10));
  }
  const Bytes arena = place_symbols(symbols, Segment::kActivations);
  RC_ASSERT(fault_of(symbols, arena) == "");
  RC_ASSERT(arena.value() >= most_alive(symbols));
}

TEST(Placement, NothingToPlaceNeedsNoArena) {
  std::vector<Symbol> symbols;
  EXPECT_EQ(place_symbols(symbols, Segment::kActivations), Bytes(0));
  symbols.resize(1);
  symbols[0].size = Bytes(100);  // never used
  EXPECT_EQ(place_symbols(symbols, Segment::kActivations), Bytes(0));
}

TEST(Placement, ABufferTakesTheSmallestGapThatHoldsIt) {
  const auto symbol = [](int64_t size, int first, int last) {
    Symbol made;
    made.size = Bytes(size);
    made.first_use = first;
    made.last_use = last;
    return made;
  };
  // The two that end early leave gaps of 320 and 192 bytes between those that stay.
  std::vector<Symbol> symbols = {symbol(512, 0, 9), symbol(320, 0, 1), symbol(256, 0, 9),
                                 symbol(192, 0, 1), symbol(130, 0, 9), symbol(100, 2, 9)};
  EXPECT_EQ(place_symbols(symbols, Segment::kActivations), Bytes(512 + 320 + 256 + 192 + 192));
  EXPECT_EQ(symbols[5].offset, symbols[3].offset);
}

/// Programs of real models: placement is close to the best possible.
class ProgramPlacement : public ::testing::TestWithParam<Numerics> {};

TEST_P(ProgramPlacement, ArenaIsWithinATenthOfWhatIsAliveAtOnce) {
  for (int samples : {1, 3, 8}) {
    StageSpec stage;
    stage.model.layers = 5;
    stage.model.heads = 4;
    stage.model.width = 64;
    stage.model.context = 32;
    stage.model.vocab = 256;
    stage.layers = whole_model(stage.model);
    stage.numerics = GetParam();
    const ParameterLayout parameters(stage.model);
    const ExchangeLayout exchange(stage, samples);
    const Program program = compile_training(stage, parameters, exchange, samples);
    EXPECT_EQ(fault_of(program.symbols, program.arena), "");
    const auto alive = static_cast<double>(most_alive(program.symbols));
    EXPECT_LE(static_cast<double>(program.arena.value()), 1.1 * alive) << samples << " samples";
  }
}

INSTANTIATE_TEST_SUITE_P(Numerics, ProgramPlacement,
                         ::testing::Values(Numerics::kFast, Numerics::kExact));

}  // namespace
}  // namespace motley
