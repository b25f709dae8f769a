// Plans of sums: what they put on links, who speaks for an island, what they need.

#include "core/reduction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "core/chunk_sizes.h"
#include "core/reducer_memory.h"
#include "tests/support/new_seeds.h"

namespace motley {
namespace {

Islands islands_with(std::vector<int> of_rank, std::vector<double> bytes_per_second) {
  return {.of_rank = std::move(of_rank),
          .bytes_per_second = std::move(bytes_per_second),
          .latency_seconds = 1e-4};
}

ReductionClass all_of(const Islands& islands, int64_t elements) {
  std::vector<int> ranks(islands.of_rank.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return {ranks, ranks, std::nullopt, elements};
}

double longest(const std::vector<double>& shares, const std::vector<double>& speed) {
  double time = 0;
  for (size_t i = 0; i < speed.size(); ++i)
    time = std::max(time, (1 + (static_cast<double>(speed.size()) - 2) * shares[i]) / speed[i]);
  return time;
}

/// The least over all shares that are multiples of 1/40.
double best_on_a_grid(const std::vector<double>& speed) {
  constexpr int kParts = 40;
  double best = longest(std::vector<double>(speed.size(), 1.0), speed);
  std::vector<int> parts(speed.size(), 0);
  const auto choose = [&](auto& self, size_t i, int left) -> void {
    if (i + 1 == speed.size()) {
      parts[i] = left;
      std::vector<double> shares;
      for (const int part : parts) shares.push_back(static_cast<double>(part) / kParts);
      best = std::min(best, longest(shares, speed));
      return;
    }
    for (parts[i] = 0; parts[i] <= left; ++parts[i]) self(self, i + 1, left - parts[i]);
  };
  choose(choose, 0, kParts);
  return best;
}

TEST(Reduction, RootSharesAreTheBestThereAre) {
  std::mt19937_64 random(seed_of_this_run());
  std::uniform_real_distribution<double> exponent(7, 10);
  for (int round = 0; round < 60; ++round) {
    std::vector<double> speed(3 + static_cast<size_t>(round % 2));
    for (double& one : speed) one = std::pow(10.0, exponent(random));
    const std::vector<double> shares = root_shares(speed);
    EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-9);
    EXPECT_GE(*std::min_element(shares.begin(), shares.end()), 0);
    EXPECT_LE(longest(shares, speed), best_on_a_grid(speed) * (1 + 1e-9));
  }
}

TEST(Reduction, NothingIsRootedAtALinkThatIsMuchSlower) {
  EXPECT_NEAR(root_shares({125e6, 25e6, 125e6})[1], 0, 1e-9);
}

TEST(Reduction, OfTwoIslandsEachLinkCarriesTheElementsOnceHoweverRanksAreSpread) {
  const int64_t elements = 4'000'003;
  for (const std::vector<int>& of_rank :
       {std::vector<int>{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}, {1, 0, 0, 0, 0, 1}, {0, 1}}) {
    const Islands islands = islands_with(of_rank, {1e8, 1e9});
    const ReductionPlan plan = plan_reduction({all_of(islands, elements)}, islands, 4);
    EXPECT_EQ(plan.link_bytes(0), Bytes(elements * 4));
    EXPECT_EQ(plan.link_bytes(1), Bytes(elements * 4));
  }
}

TEST(Reduction, OfSeveralIslandsLinksCarryTheirSharesWithinAFewChunks) {
  const int64_t elements = 16 << 20;
  const double all = static_cast<double>(elements) * 4;
  for (const std::vector<int>& of_rank :
       {std::vector<int>{0, 0, 0, 1, 1, 2}, {2, 0, 1, 0, 1, 0}, {0, 1, 2}}) {
    const Islands islands = islands_with(of_rank, {1e9, 1e9, 1e9});
    const ReductionPlan plan = plan_reduction({all_of(islands, elements)}, islands, 4);
    for (int island = 0; island < 3; ++island)
      EXPECT_NEAR(static_cast<double>(plan.link_bytes(island).value()), all * 4 / 3, all * 0.02);
  }
}

TEST(Reduction, EveryElementIsInOneChunkWithALeaderOfEachIsland) {
  const Islands islands = islands_with({0, 1, 0, 2, 1, 0}, {1e8, 1e9, 1e9});
  for (const int64_t elements : {1, 1000, 8191, 1'000'003}) {
    const ReductionPlan plan = plan_reduction({all_of(islands, elements)}, islands, 8);
    const ReductionPart& part = plan.parts[0];
    EXPECT_GE(part.chunks() * part.chunk_elements, elements);
    EXPECT_LT((part.chunks() - 1) * part.chunk_elements, elements);
    std::set<int> leaders;
    for (int64_t c = 0; c < part.chunks(); ++c)
      for (int which = 0; which < 3; ++which) {
        const int leader = part.leader(which, c);
        EXPECT_EQ(islands.of_rank[static_cast<size_t>(leader)],
                  part.islands[static_cast<size_t>(which)].island);
        leaders.insert(leader);
      }
    if (elements > 1'000'000) {
      EXPECT_EQ(leaders.size(), 6U) << "each has some of the work";
    }
  }
}

TEST(Reduction, SmallSumsTakeOneLatency) {
  const Islands islands = islands_with({0, 1, 2, 3}, {1e8, 1e8, 1e8, 1e8});
  EXPECT_TRUE(plan_reduction({all_of(islands, 100)}, islands, 4).parts[0].direct());
  EXPECT_FALSE(plan_reduction({all_of(islands, 10'000'000)}, islands, 4).parts[0].direct());
}

/// Of all chunks in their order.
std::vector<int64_t> places_of(const ReductionPlan& plan) {
  std::vector<int64_t> places;
  for (const ReductionTurn& turn : plan.turns())
    places.push_back(plan.parts[turn.part].place(turn.chunk));
  return places;
}

TEST(Reduction, EveryChunkHasOneTurn) {
  std::mt19937_64 random(seed_of_this_run());
  const Islands islands = islands_with({0, 1, 2}, {1e8, 1e9, 1e9});
  for (int round = 0; round < 50; ++round) {
    std::vector<ReductionClass> classes;
    for (size_t i = 0; i < 1 + random() % 5; ++i) {
      classes.push_back(all_of(islands, static_cast<int64_t>(random() % 3'000'000)));
      for (int64_t at = 0, place = 0; random() % 8 != 0; at += 100'000)
        classes.back().places.push_back({at, place += static_cast<int64_t>(random() % 1'000'000)});
    }
    const ReductionPlan plan = plan_reduction(classes, islands, 4);
    std::set<std::pair<size_t, int64_t>> seen;
    for (const ReductionTurn& turn : plan.turns())
      EXPECT_TRUE(seen.emplace(turn.part, turn.chunk).second);
    size_t chunks = 0;
    for (const ReductionPart& part : plan.parts) chunks += static_cast<size_t>(part.chunks());
    EXPECT_EQ(seen.size(), chunks);
  }
}

TEST(Reduction, OnePartGoesFromItsLastChunkToItsFirst) {
  const Islands islands = islands_with({0, 1}, {1e8, 1e8});
  const std::vector<int64_t> places =
      places_of(plan_reduction({all_of(islands, 5'000'000)}, islands, 4));
  EXPECT_TRUE(std::is_sorted(places.rbegin(), places.rend()));
}

TEST(Reduction, ForAForwardPassTheFirstChunksGoFirst) {
  const Islands islands = islands_with({0, 1}, {1e8, 1e8});
  const std::vector<ReductionClass> classes = {all_of(islands, 5'000'000)};
  const ReductionPlan plan =
      plan_reduction(classes, islands, 4, {.order = ReductionOrder::kFromTheBeginning});
  const std::vector<int64_t> places = places_of(plan);
  EXPECT_TRUE(std::is_sorted(places.begin(), places.end()));
  EXPECT_NE(plan.hash(), plan_reduction(classes, islands, 4).hash());
}

/// The first class lies at the model's beginning and end, the second between.
TEST(Reduction, WhatLiesLaterInTheModelGoesFirst) {
  const Islands islands = islands_with({0, 1}, {1e8, 1e8});
  std::vector<ReductionClass> classes(2, all_of(islands, 4 << 20));
  classes[0].places = {{0, 0}, {1 << 20, 5 << 20}};
  classes[1].places = {{0, 1 << 20}};
  const ReductionPlan plan = plan_reduction(classes, islands, 4);
  const std::vector<int64_t> places = places_of(plan);
  EXPECT_TRUE(std::is_sorted(places.rbegin(), places.rend()));
  EXPECT_EQ(places.front() / (1 << 20), 7);
  std::vector<size_t> parts;
  for (const ReductionTurn& turn : plan.turns()) parts.push_back(turn.part);
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  EXPECT_EQ(parts, (std::vector<size_t>{0, 1, 0}));
}

/// As owners of a sharded optimizer do.
TEST(Reduction, PartsThatAlternateOverTheModelTakeTurnsChunkByChunk) {
  const Islands islands = islands_with({0, 1}, {1e8, 1e8});
  std::vector<ReductionClass> classes(2, all_of(islands, 2 << 20));
  for (int64_t stretch = 0; stretch < 32; ++stretch)
    classes[stretch % 2].places.push_back({stretch / 2 * (128 << 10), stretch * (128 << 10)});
  const ReductionPlan plan = plan_reduction(classes, islands, 4);
  const auto turns = plan.turns();
  for (size_t i = 0; i + 1 < turns.size(); i += 2) EXPECT_NE(turns[i].part, turns[i + 1].part);
  ReductionPlan elsewhere = plan;
  elsewhere.parts[1].places[0].place = 1;
  EXPECT_NE(elsewhere.hash(), plan.hash()) << "ranks with another order are told apart";
}

TEST(Reduction, TheHashTellsPlansApart) {
  const Islands islands = islands_with({0, 0, 1}, {1e8, 1e8});
  const std::string hash = plan_reduction({all_of(islands, 1000)}, islands, 4).hash();
  EXPECT_EQ(plan_reduction({all_of(islands, 1000)}, islands, 4).hash(), hash);
  EXPECT_NE(plan_reduction({all_of(islands, 1001)}, islands, 4).hash(), hash);
  EXPECT_NE(plan_reduction({all_of(islands, 1000)}, islands, 8).hash(), hash);
  const Islands others = islands_with({0, 1, 1}, {1e8, 1e8});
  EXPECT_NE(plan_reduction({all_of(others, 1000)}, others, 4).hash(), hash);
  ReductionClass owned = all_of(islands, 1000);
  owned.owner = 2;
  EXPECT_NE(plan_reduction({owned}, islands, 4).hash(), hash);
}

/// Of a large sum over all ranks of such islands.
int64_t chunk_bytes_of(const std::vector<int>& ranks_of_island, std::vector<double> speed,
                       double latency, const CodecSpec& codec = {}) {
  Islands islands{.of_rank = {}, .bytes_per_second = std::move(speed), .latency_seconds = latency};
  for (size_t i = 0; i < ranks_of_island.size(); ++i)
    islands.of_rank.insert(islands.of_rank.end(), static_cast<size_t>(ranks_of_island[i]),
                           static_cast<int>(i));
  ReductionOptions options;
  options.compression.codec = codec;
  const ReductionPlan plan =
      plan_reduction({all_of(islands, 64 << 20)}, islands, sizeof(float), options);
  return plan.parts[0].chunk_elements * int64_t{sizeof(float)};
}

TEST(ReductionChunks, AreOf128KibWhereLinksAreShort) {
  for (const double measured : {1.5e-4, 2e-4, 3e-4, 8e-4})
    for (const double speed : {25e6, 110e6, 125e6, 130e6})
      for (const std::vector<int>& ranks : {std::vector<int>{2, 2}, {3, 1}, {1, 1}, {3, 2, 1}})
        EXPECT_EQ(chunk_bytes_of(ranks, std::vector<double>(ranks.size(), speed), measured),
                  128 << 10);
  EXPECT_EQ(chunk_bytes_of({2, 2}, {LinkProfile::kFree, LinkProfile::kFree}, 0), 128 << 10);
}

TEST(ReductionChunks, OfAnIslandsLeadersTogetherFillTwoRoundTripsOfTheLink) {
  for (const double speed : {125e6, 312e6, 3.125e9, 12.5e9})
    for (const double latency : {1e-4, 1e-3, 5e-3, 1e-2, 2e-2, 1e-1})
      for (const std::vector<int>& ranks : {std::vector<int>{2, 2}, {4, 1}, {4, 8}, {2, 3, 2}}) {
        const int64_t chunk =
            chunk_bytes_of(ranks, std::vector<double>(ranks.size(), speed), latency);
        const int leaders = *std::min_element(ranks.begin(), ranks.end());
        const double round_trips = static_cast<double>(8 * leaders * chunk) / (speed * 2 * latency);
        EXPECT_GE(chunk, 128 << 10);
        EXPECT_LE(chunk, 1 << 20);
        if (chunk < 1 << 20) {
          EXPECT_GE(round_trips, 2);
        }
        const double spare = static_cast<double>(8 * leaders * (128 << 10)) / (speed * 2 * latency);
        if (chunk > 128 << 10) {
          EXPECT_LE(round_trips, 2 + spare);
        }
      }
}

TEST(ReductionChunks, FollowTheSlowestLinkThatASumCrosses) {
  EXPECT_GT(chunk_bytes_of({2, 2}, {1e9, 1e9}, 0.01), 512 << 10);
  EXPECT_EQ(chunk_bytes_of({2, 2, 2}, {1e9, 1e9, 1e7}, 0.01), 128 << 10);
}

TEST(ReductionChunks, ThatAreCompressedAreAsLongOnLinksButNeverLongerThanTheLongest) {
  const CodecSpec int8{.kind = CodecKind::kInt8};
  EXPECT_EQ(chunk_bytes_of({2, 2}, {25e6, 25e6}, 2e-4, int8),
            3 * chunk_bytes_of({2, 2}, {25e6, 25e6}, 2e-4));
  EXPECT_EQ(chunk_bytes_of({2, 2}, {125e6, 125e6}, 0.1, int8), 1 << 20);
}

TEST(ReductionChunks, WithinAnIslandAreAsEver) {
  EXPECT_EQ(chunk_bytes_of({4}, {1e9}, 0.1), 64 << 10);
}

TEST(ReductionChunks, SmallSumsAreCutForAllLeadersHoweverLongTheLinks) {
  const Islands far{.of_rank = {0, 0, 1, 1}, .bytes_per_second = {1e9, 1e9}, .latency_seconds = 1};
  EXPECT_EQ(plan_reduction({all_of(far, 1 << 20)}, far, 4).parts[0].chunks(), 16);
}

TEST(ReductionChunks, OfOtherLengthMakeAnotherPlan) {
  Islands islands{.of_rank = {0, 1}, .bytes_per_second = {1e9, 1e9}, .latency_seconds = 1e-4};
  const ReductionClass all = all_of(islands, 4 << 20);
  const std::string near = plan_reduction({all}, islands, 4).hash();
  islands.latency_seconds = 1e-2;
  EXPECT_NE(plan_reduction({all}, islands, 4).hash(), near);
}

/// Between some of so many hosts, near and far, each once.
std::vector<LinkProfile> any_links(int hosts, std::mt19937_64* random) {
  std::uniform_real_distribution<double> speed(6, 11);
  std::uniform_real_distribution<double> latency(-6, 0);
  std::vector<LinkProfile> links;
  for (int a = 0; a < hosts; ++a)
    for (int b = a; b < hosts; ++b)
      if ((*random)() % 5 != 0)
        links.push_back({{std::to_string(a), std::to_string(b)},
                         std::pow(10.0, latency(*random)),
                         std::pow(10.0, speed(*random))});
  return links;
}

TEST(Reduction, MemoryOfPlainReplicasIsWithinItsFormula) {
  std::mt19937_64 random(seed_of_this_run());
  for (int round = 0; round < 600; ++round) {
    const int ranks = 1 + static_cast<int>(random() % 9);
    const int hosts = 1 + static_cast<int>(random() % static_cast<uint64_t>(ranks));
    const int fleet = hosts + static_cast<int>(random() % 3);
    const int64_t elements = 1 + static_cast<int64_t>(random() % 9'000'000);
    const std::vector<LinkProfile> links = any_links(fleet, &random);
    std::vector<std::string> host_of_rank;  // some hosts of the fleet have none
    for (int rank = 0; rank < ranks; ++rank) {
      const int host = rank < hosts ? rank : static_cast<int>(random() % hosts);
      host_of_rank.push_back(std::to_string(fleet - 1 - host));
    }
    const Islands islands = islands_of(host_of_rank, links);
    const CodecSpec codec{.kind = round % 3 == 0 ? CodecKind::kInt8 : CodecKind::kOff};
    ReductionOptions options;
    options.compression.codec = codec;
    const ReductionPlan plan = plan_reduction({all_of(islands, elements)}, islands, 4, options);
    for (int rank = 0; rank < ranks && ranks > 1; ++rank)
      EXPECT_LE(
          reducer_memory(plan, islands, rank).total(),
          plain_reducer_bytes(elements, 4, {ranks, hosts, most_round_trip_bytes(links)}, codec))
          << ranks << " ranks on " << hosts << " hosts, " << elements << " elements";
  }
}

/// Small classes of few ranks beside large ones of many: a leader has a slot of the memory that its
/// island shares for each chunk it leads at a time, whether or not the chunk passes through it.
TEST(Reduction, EveryChunkThatIsLedHasASlot) {
  std::mt19937_64 random(seed_of_this_run());
  for (int round = 0; round < 300; ++round) {
    const Islands islands = islands_with({0, 0, 1, 0, 1, 2}, {1e8, 1e8, 1e9});
    std::vector<ReductionClass> classes;
    for (int number = 1 + static_cast<int>(random() % 5); number > 0; --number) {
      std::vector<int> ranks;
      for (int rank = 0; rank < 6; ++rank)
        if (random() % 2 == 0) ranks.push_back(rank);
      if (ranks.empty()) ranks.push_back(0);
      classes.push_back({ranks, ranks, std::nullopt, 1 + static_cast<int64_t>(random() % 200'000)});
    }
    const ReductionPlan plan = plan_reduction(classes, islands, 4);
    for (int rank = 0; rank < 6; ++rank) {
      const ReducerMemory memory = reducer_memory(plan, islands, rank);
      if (memory.island.slot_bytes > 0) {
        EXPECT_LE(memory.led, static_cast<size_t>(memory.island.slots));
      }
      const int home = islands.of_rank[static_cast<size_t>(rank)];
      for (int other = 0; other < 6; ++other) {
        if (islands.of_rank[static_cast<size_t>(other)] != home) continue;
        EXPECT_EQ(reducer_memory(plan, islands, other).island.slots, memory.island.slots)
            << "of ranks that map the same";
      }
    }
  }
}

TEST(Reduction, ADistantSlowHostDoesNotMakeTheFormulaCountLongChunks) {
  const std::vector<LinkProfile> links = {{{"a", "b"}, 1e-5, 12.5e9},
                                          {{"a", "far"}, 3e-2, 1.25e6},
                                          {{"b", "far"}, 3e-2, 1.25e6},
                                          {{"a", "a"}, 1, 1e12}};
  EXPECT_DOUBLE_EQ(most_round_trip_bytes(links), 2 * 1e-5 * 12.5e9);
  EXPECT_EQ(most_round_trip_bytes({}), 0);
}

TEST(Reduction, HostsAreIslandsAndTheirFastestLinkCounts) {
  const std::vector<LinkProfile> links = {{{"a", "b"}, 1e-4, 25e6},
                                          {{"a", "c"}, 2e-4, 125e6},
                                          {{"b", "c"}, 1e-4, 25e6},
                                          {{"a", "a"}, 1e-6, 5e9}};
  const Islands islands = islands_of({"a", "b", "a", "c"}, links);
  EXPECT_EQ(islands.of_rank, (std::vector<int>{0, 1, 0, 2}));
  EXPECT_EQ(islands.bytes_per_second, (std::vector<double>{125e6, 25e6, 125e6}));
  EXPECT_EQ(islands.latency_seconds, 2e-4);
}

}  // namespace
}  // namespace motley
