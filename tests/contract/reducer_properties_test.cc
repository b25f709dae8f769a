// Properties of sums over islands, among ranks of one process: whatever the shape, the links, the
// chunks and whoever is late.

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "comm/communicator.h"

namespace motley::testing {
namespace {

/// Each case is a few threads and some thousand elements.
constexpr int64_t kMostElements = 4000;

/// A sum and all that must not show in its bits.
struct Setting {
  Islands islands;
  ReductionClass sum;
  ReductionOptions options;
  uint32_t seed = 0;  ///< of elements

  int ranks() const { return static_cast<int>(islands.of_rank.size()); }
};

/// 2+2, 3+1, 3+2+1, 1+1+1, or up to 8 ranks anywhere.
std::vector<int> any_shape() {
  static const std::vector<std::vector<int>> kKnown = {
      {0, 0, 1, 1}, {0, 0, 0, 1}, {0, 0, 0, 1, 1, 2}, {0, 1, 2}, {}};
  const auto known = *rc::gen::elementOf(kKnown);
  if (!known.empty()) return known;
  const auto ranks = *rc::gen::inRange<size_t>(1, 9);
  std::vector<int> of_rank = *rc::gen::container<std::vector<int>>(ranks, rc::gen::inRange(0, 4));
  std::vector<int> numbers(4, -1);  // in the order in which they appear
  int next = 0;
  for (int& island : of_rank) {
    int& number = numbers[static_cast<size_t>(island)];
    if (number < 0) number = next++;
    island = number;
  }
  return of_rank;
}

/// With links and chunks as they come; different ones change nothing but the time it takes.
void draw_ways(Setting* setting) {
  const int count =
      1 + *std::max_element(setting->islands.of_rank.begin(), setting->islands.of_rank.end());
  setting->islands.bytes_per_second.clear();
  for (int i = 0; i < count; ++i)
    setting->islands.bytes_per_second.push_back(*rc::gen::element(10e6, 25e6, 125e6, 1e9));
  setting->islands.latency_seconds = *rc::gen::element(0.0, 1e-5, 1e-2);
  const Bytes chunk(*rc::gen::element(512, 1024, 4096, 128 << 10));
  setting->options = {.largest_chunk = chunk,
                      .longest_chunk = chunk * *rc::gen::element<int64_t>(1, 3),
                      .smallest_chunk = std::min(chunk, Bytes(*rc::gen::element(512, 1024))),
                      .smallest_at_home = Bytes(512),
                      .largest_at_home = chunk};
}

std::vector<int> all_of(int ranks) {
  std::vector<int> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<int> some_of(int ranks) {
  std::vector<int> some;
  for (const int rank : all_of(ranks))
    if (*rc::gen::arbitrary<bool>()) some.push_back(rank);
  if (some.empty()) some.push_back(*rc::gen::inRange(0, ranks));
  return some;
}

Setting any_setting() {
  Setting setting{.islands = {.of_rank = any_shape(), .bytes_per_second = {}, .latency_seconds = 0},
                  .sum = {},
                  .options = {},
                  .seed = *rc::gen::arbitrary<uint32_t>()};
  const bool everyone = *rc::gen::arbitrary<bool>();
  const auto ranks = [&] { return everyone ? all_of(setting.ranks()) : some_of(setting.ranks()); };
  setting.sum = {
      .contributors = ranks(),
      .receivers = ranks(),
      .owner = {},
      .elements = *rc::gen::oneOf(rc::gen::elementOf(std::vector<int64_t>{0, 1, 2, 7, 1021}),
                                  rc::gen::inRange<int64_t>(0, kMostElements))};
  draw_ways(&setting);
  return setting;
}

/// Magnitudes differ so much that another order of summation shows in the bits.
template <class T>
T element_of(uint32_t seed, int rank, int64_t i) {
  std::minstd_rand random(seed + static_cast<uint32_t>(rank) * 7919U +
                          static_cast<uint32_t>(i) * 104729U);
  random.discard(2);
  const auto value = static_cast<int32_t>(random());
  if constexpr (std::is_same_v<T, int64_t>)
    return static_cast<int64_t>(value) * (int64_t{1} << 26);
  else
    return static_cast<T>(value) * (random() % 3 == 0 ? T(0.001) : T(1000));
}

/// Says of anything, now and then, that it is not there yet.
class LateElements final : public ElementGate {
 public:
  explicit LateElements(uint32_t seed) : random_(seed) {}
  Result<bool> readable(std::span<const ElementRun>) override { return random_() % 2 == 0; }
  Result<Unit> written(std::span<const ElementRun>) override { return Unit{}; }

 private:
  std::minstd_rand random_;
};

/// What each rank has in the end, and what was sent from each island.
template <class T>
struct Outcome {
  std::vector<std::vector<T>> of_rank;
  std::vector<int64_t> sent;
};

/// Rank r gives what elements(r) says, `beside` or not.
template <class T, class Elements>
Outcome<T> outcome_of(const Setting& setting, const Elements& elements, bool beside = false,
                      uint32_t lateness = 1) {
  const ReductionPlan plan =
      plan_reduction({setting.sum}, setting.islands, sizeof(T), setting.options);
  Outcome<T> outcome;
  outcome.of_rank.resize(static_cast<size_t>(setting.ranks()));
  std::vector<int64_t> sent(outcome.of_rank.size());
  const auto done = run_inproc(setting.ranks(), [&](Communicator& comm) -> Result<Unit> {
    const auto rank = static_cast<size_t>(comm.rank());
    std::vector<T>& values = outcome.of_rank[rank] = elements(comm.rank());
    std::vector<ElementRun> runs;
    if (setting.sum.elements > 0)
      runs.push_back({.offset = 0, .count = setting.sum.elements, .at = 0});
    MOTLEY_TRY(const auto reducer, comm.open_reducer(plan, setting.islands, {runs}));
    LateElements late(lateness + static_cast<uint32_t>(rank));
    const auto flat = std::as_writable_bytes(std::span(values));
    MOTLEY_TRY_VOID(beside ? reducer->begin_beside(flat, sum_type_of<T>(), late)
                           : reducer->begin(flat, sum_type_of<T>(), &late));
    MOTLEY_TRY_VOID(reducer->wait());
    sent[rank] = reducer->bytes_sent();
    return Unit{};
  });
  RC_ASSERT(done.has_value());
  outcome.sent.assign(static_cast<size_t>(setting.islands.count()), 0);
  for (size_t rank = 0; rank < sent.size(); ++rank)
    outcome.sent[static_cast<size_t>(setting.islands.of_rank[rank])] += sent[rank];
  return outcome;
}

template <class T>
std::vector<T> elements_of_rank(const Setting& setting, int rank) {
  std::vector<T> values(static_cast<size_t>(setting.sum.elements));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = element_of<T>(setting.seed, rank, static_cast<int64_t>(i));
  return values;
}

/// Island by island, in each rank by rank.
template <class T>
std::vector<T> sum_in_order(const Setting& setting) {
  std::vector<T> total;
  const auto add = [](std::vector<T>* to, const std::vector<T>& values) {
    if (to->empty()) *to = std::vector<T>(values.size(), T(0));
    for (size_t i = 0; i < values.size(); ++i) (*to)[i] += values[i];
  };
  for (int island = 0; island < setting.islands.count(); ++island) {
    std::vector<T> sum;
    for (const int rank : setting.sum.contributors)
      if (setting.islands.of_rank[static_cast<size_t>(rank)] == island)
        add(&sum, elements_of_rank<T>(setting, rank));
    if (!sum.empty()) add(&total, sum);
  }
  return total;
}

template <class T>
bool same_bits(const std::vector<T>& one, const std::vector<T>& other) {
  return one.size() == other.size() &&
         (one.empty() || std::memcmp(one.data(), other.data(), one.size() * sizeof(T)) == 0);
}

/// Several times with other links, chunks and delays: who receives has the sum, who does not has
/// what it had.
template <class T>
void expect_the_same_bits_every_time() {
  Setting setting = any_setting();
  const std::vector<T> wanted = sum_in_order<T>(setting);
  for (int run = 0; run < 3; ++run) {
    const auto outcome = outcome_of<T>(
        setting, [&](int rank) { return elements_of_rank<T>(setting, rank); }, run == 1,
        *rc::gen::arbitrary<uint32_t>());
    for (const int rank : all_of(setting.ranks())) {
      const bool receives =
          std::binary_search(setting.sum.receivers.begin(), setting.sum.receivers.end(), rank);
      RC_ASSERT(same_bits(outcome.of_rank[static_cast<size_t>(rank)],
                          receives ? wanted : elements_of_rank<T>(setting, rank)));
    }
    draw_ways(&setting);
  }
}

RC_GTEST_PROP(ReducerProperties, FloatsHaveTheSameBitsEveryTime, ()) {
  expect_the_same_bits_every_time<float>();
}
RC_GTEST_PROP(ReducerProperties, DoublesHaveTheSameBitsEveryTime, ()) {
  expect_the_same_bits_every_time<double>();
}
RC_GTEST_PROP(ReducerProperties, IntegersHaveTheSameBitsEveryTime, ()) {
  expect_the_same_bits_every_time<int64_t>();
}

/// What `numerics: exact` rests on: it does not matter who gives what, nor from which host.
RC_GTEST_PROP(ReducerProperties, IntegersHaveTheSameBitsWhoeverGivesThem, ()) {
  Setting setting = any_setting();
  setting.sum.contributors = all_of(setting.ranks());
  setting.sum.receivers = {0};
  const auto give = [&](const std::vector<int>& part_of) {
    return outcome_of<int64_t>(setting,
                               [&](int rank) {
                                 return elements_of_rank<int64_t>(
                                     setting, part_of[static_cast<size_t>(rank)]);
                               })
        .of_rank[0];
  };
  std::vector<int> part_of = all_of(setting.ranks());
  const auto as_they_are = give(part_of);
  std::shuffle(part_of.begin(), part_of.end(), std::mt19937(setting.seed));
  for (int& island : setting.islands.of_rank) island = setting.islands.count() - 1 - island;
  RC_ASSERT(same_bits(give(part_of), as_they_are));
}

/// Sums over tokens, divided once by their count: ranks with none give nothing and have it too.
RC_GTEST_PROP(ReducerProperties, TheMeanOfAConstantIsTheConstant, ()) {
  Setting setting = any_setting();
  const auto tokens = *rc::gen::container<std::vector<int>>(static_cast<size_t>(setting.ranks()),
                                                            rc::gen::inRange(0, 1000));
  setting.sum.contributors.clear();
  for (const int rank : all_of(setting.ranks()))
    if (tokens[static_cast<size_t>(rank)] > 0) setting.sum.contributors.push_back(rank);
  RC_PRE(!setting.sum.contributors.empty());
  setting.sum.receivers = all_of(setting.ranks());
  const int all = std::accumulate(tokens.begin(), tokens.end(), 0);
  const double constant = *rc::gen::inRange(-1000, 1000) / 8.0;  // its multiples are doubles
  const auto elements = static_cast<size_t>(setting.sum.elements);
  const auto outcome = outcome_of<double>(setting, [&](int rank) {
    const int mine = tokens[static_cast<size_t>(rank)];
    return std::vector<double>(elements, mine > 0 ? constant * mine : -77.0);
  });
  for (const auto& values : outcome.of_rank)
    for (const double value : values) RC_ASSERT(value / all == constant);
}

RC_GTEST_PROP(ReducerProperties, WhatGoesOverLinksIsWhatWasPlanned, ()) {
  Setting setting = any_setting();
  setting.sum.contributors = setting.sum.receivers = all_of(setting.ranks());
  const ReductionPlan plan =
      plan_reduction({setting.sum}, setting.islands, sizeof(float), setting.options);
  const auto outcome =
      outcome_of<float>(setting, [&](int rank) { return elements_of_rank<float>(setting, rank); });
  for (int island = 0; island < setting.islands.count(); ++island)
    RC_ASSERT(outcome.sent[static_cast<size_t>(island)] == plan.link_bytes(island).value());
}

}  // namespace
}  // namespace motley::testing
