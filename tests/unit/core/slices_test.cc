#include "core/slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace motley {
namespace {

using ::testing::HasSubstr;

int between(int low, int high) { return *rc::gen::inRange(low, high + 1); }

Slice random_box(const std::vector<int64_t>& shape) {
  Slice box;
  for (const int64_t size : shape) {
    box.start.push_back(between(0, static_cast<int>(size) - 1));
    box.extent.push_back(between(1, static_cast<int>(size - box.start.back())));
  }
  return box;
}

std::vector<int64_t> random_shape(int largest) {
  std::vector<int64_t> shape;
  for (int d = between(0, 3); d > 0; --d) shape.push_back(between(1, largest));
  return shape;
}

/// Calls visit with every index of the box, in row-major order.
template <class Visit>
void for_each_index(const Slice& box, const Visit& visit) {
  std::vector<int64_t> index = box.start;
  for (int64_t n = box.elements(); n > 0; --n) {
    visit(index);
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < box.start[d] + box.extent[d]) break;
      index[d] = box.start[d];
    }
  }
}

/// How often each element of `shape` is covered, by counting.
bool covered_exactly_once(const std::vector<int64_t>& shape, const std::vector<Slice>& slices) {
  std::map<std::vector<int64_t>, int> count;
  for (const Slice& slice : slices)
    for_each_index(slice, [&](const auto& index) { ++count[index]; });
  bool once = true;
  for_each_index(whole(shape), [&](const auto& index) { once = once && count[index] == 1; });
  return once;
}

TEST(Slices, TilingAgreesWithCounting) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<int64_t> shape = random_shape(4);
    std::vector<Slice> slices;
    for (int n = between(1, 5); n > 0; --n) slices.push_back(random_box(shape));
    RC_ASSERT(check_tiles("t", shape, slices).has_value() == covered_exactly_once(shape, slices));
  }));
}

TEST(Slices, CutsOfAWholeTileIt) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<int64_t> shape = random_shape(6);
    std::vector<Slice> slices{whole(shape)};
    for (int cuts = shape.empty() ? 0 : between(0, 8); cuts > 0; --cuts) {
      Slice& box = slices[static_cast<size_t>(between(0, static_cast<int>(slices.size()) - 1))];
      const auto d = static_cast<size_t>(between(0, static_cast<int>(shape.size()) - 1));
      if (box.extent[d] < 2) continue;
      const int64_t cut = between(1, static_cast<int>(box.extent[d]) - 1);
      Slice rest = box;
      rest.start[d] += cut;
      rest.extent[d] -= cut;
      box.extent[d] = cut;
      slices.push_back(rest);
    }
    RC_ASSERT(check_tiles("t", shape, slices).has_value());
    const auto lost = static_cast<size_t>(between(0, static_cast<int>(slices.size()) - 1));
    const Slice removed = slices[lost];
    slices.erase(slices.begin() + static_cast<std::ptrdiff_t>(lost));
    RC_ASSERT(!check_tiles("t", shape, slices).has_value());
    slices.push_back(removed);
    slices.push_back(removed);
    RC_ASSERT(!check_tiles("t", shape, slices).has_value());
  }));
}

TEST(Slices, NamesTheFirstGapAndOverlap) {
  const auto message = [](const std::vector<Slice>& slices) {
    return check_tiles("w", {4, 6}, slices).error().message;
  };
  EXPECT_THAT(message({{{0, 0}, {2, 6}}}), HasSubstr("no slice covers [2, 0]"));
  EXPECT_THAT(message({{{0, 0}, {4, 3}}, {{0, 4}, {4, 2}}}), HasSubstr("no slice covers [0, 3]"));
  EXPECT_THAT(message({{{0, 0}, {3, 6}}, {{2, 0}, {2, 6}}}), HasSubstr("two slices cover [2, 0]"));
  EXPECT_THAT(message({{{0, 0}, {5, 6}}}), HasSubstr("leaves the shape [4, 6]"));
  EXPECT_THAT(message({{{0, 0}, {4, 0}}}), HasSubstr("leaves the shape"));
  EXPECT_THAT(message({}), HasSubstr("no slice covers [0, 0]"));
}

TEST(Slices, NumbersNobodyCheckedAreSafe) {
  constexpr int64_t kHuge = INT64_MAX;
  EXPECT_FALSE(check_tiles("t", {kHuge, kHuge}, {whole({kHuge, kHuge})}));
  EXPECT_FALSE(check_tiles("t", {4}, {{{kHuge}, {kHuge}}}));
  EXPECT_FALSE(check_tiles("t", {4}, {{{INT64_MIN}, {kHuge}}}));
  EXPECT_FALSE(check_tiles("t", {-4}, {{{0}, {-4}}}));
  EXPECT_FALSE(check_tiles("t", {4}, {{{0, 0}, {4, 1}}}));
  EXPECT_FALSE(check_tiles("t", {4}, {{{0}, {}}}));
  EXPECT_FALSE(check_tiles("t", std::vector<int64_t>(60, 1), {}));
  EXPECT_FALSE(checked_product({INT64_MAX, 2}));
  EXPECT_FALSE(checked_product({0}));
  EXPECT_EQ(checked_product({}), 1);
}

TEST(Slices, RunsCopyTheCommonPartAndNothingElse) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<int64_t> shape = random_shape(5);
    const Slice from = random_box(shape), to = random_box(shape);
    // Each element of `from` is the number of its place; `to` is -1 where nothing arrives.
    std::map<std::vector<int64_t>, int> place;
    for_each_index(
        from, [&](const auto& index) { place.emplace(index, static_cast<int>(place.size())); });
    std::vector<int> expected;
    for_each_index(
        to, [&](const auto& index) { expected.push_back(place.count(index) ? place[index] : -1); });
    std::vector<int> copied(expected.size(), -1);
    int64_t last_from = -1, last_to = -1;
    for (const CopyRun& run : copy_runs(from, to)) {
      RC_ASSERT(run.from_offset > last_from && run.to_offset > last_to);
      last_from = run.from_offset + run.count - 1;
      last_to = run.to_offset + run.count - 1;
      for (int64_t i = 0; i < run.count; ++i)
        copied.at(static_cast<size_t>(run.to_offset + i)) = static_cast<int>(run.from_offset + i);
    }
    RC_ASSERT(copied == expected);
  }));
}

TEST(Slices, RunsAreAsLongAsTheyCanBe) {
  EXPECT_EQ(copy_runs(whole({4, 8, 2}), whole({4, 8, 2})).size(), 1u);
  EXPECT_EQ(copy_runs(whole({4, 8, 2}), {{1, 0, 0}, {2, 8, 2}}).size(), 1u);
  EXPECT_EQ(copy_runs(whole({4, 8, 2}), {{0, 3, 0}, {4, 2, 2}}).size(), 4u);
  EXPECT_TRUE(copy_runs({{0}, {2}}, {{2}, {2}}).empty());
}

}  // namespace
}  // namespace motley
