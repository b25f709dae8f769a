// Packings of many devices against all packings there are, of few.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "planner/pipelines/host_packing.h"
#include "planner/pipelines/replica_packing.h"
#include "planner/pipelines/whole_packing.h"

namespace motley {
namespace {

using Counts = std::vector<int>;

int draw(std::mt19937& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}

struct Sets {
  std::vector<Counts> needs;
  std::vector<int> worth;
};

Sets random_sets(std::mt19937& random, size_t groups) {
  Sets sets;
  for (int i = draw(random, 1, 5); i > 0; --i) {
    Counts needs;
    for (size_t group = 0; group < groups; ++group) needs.push_back(draw(random, 0, 2));
    if (std::all_of(needs.begin(), needs.end(), [](int count) { return count == 0; })) needs[0] = 1;
    sets.needs.push_back(needs);
    sets.worth.push_back(draw(random, 0, 9));
  }
  return sets;
}

bool take(const Counts& needs, int times, Counts* left) {
  for (size_t group = 0; group < left->size(); ++group)
    if (((*left)[group] -= times * needs[group]) < 0) return false;
  return true;
}

/// Of at most `most` copies of these sets.
int best_worth(const Sets& sets, const Counts& there, int most) {
  int best = 0;
  const std::function<void(size_t, Counts, int, int)> go_on = [&](size_t set, Counts left,
                                                                  int copies, int worth) {
    best = std::max(best, worth);
    for (; set < sets.needs.size(); ++set) {
      Counts fewer = left;
      if (copies < most && take(sets.needs[set], 1, &fewer))
        go_on(set, fewer, copies + 1, worth + sets.worth[set]);
    }
  };
  go_on(0, there, 0, 0);
  return best;
}

TEST(WholePacking, FindsWhatIsWorthEnoughIfAnythingIs) {
  std::mt19937 random(20261127);
  for (int i = 0; i < 400; ++i) {
    SCOPED_TRACE(i);
    const size_t groups = static_cast<size_t>(draw(random, 1, 3));
    const Sets sets = random_sets(random, groups);
    Counts there;
    for (size_t group = 0; group < groups; ++group) there.push_back(draw(random, 1, 5));
    const int best = best_worth(sets, there, 1000);
    EXPECT_TRUE(pack_whole(sets.needs, sets.worth, there, best + 1, 1000).empty());
    if (best == 0) continue;
    const std::vector<int> copies = pack_whole(sets.needs, sets.worth, there, best, 1000);
    ASSERT_EQ(copies.size(), sets.needs.size());
    int worth = 0;
    Counts left = there;
    for (size_t set = 0; set < copies.size(); ++set) {
      EXPECT_TRUE(take(sets.needs[set], copies[set], &left));
      worth += copies[set] * sets.worth[set];
    }
    EXPECT_EQ(worth, best);
  }
}

/// The sum of what each host packs best; and with fewer replicas what fits the hosts in their
/// order.
TEST(HostPacking, PacksEachHostAsWellAsCanBe) {
  std::mt19937 random(20261128);
  int found = 0;
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE(i);
    const size_t groups = static_cast<size_t>(draw(random, 1, 3));
    const Sets sets = random_sets(random, groups);
    std::vector<Counts> hosts;
    for (int host = draw(random, 1, 4); host > 0; --host) {
      hosts.emplace_back();
      for (size_t group = 0; group < groups; ++group) hosts.back().push_back(draw(random, 0, 3));
    }
    const HostPacking packing(hosts, sets.needs);
    int best = 0;
    for (const Counts& host : hosts) best += best_worth(sets, host, 1000);
    EXPECT_TRUE(packing.pack(sets.worth, best + 1, 1000).empty());
    for (const int most : {1000, draw(random, 1, 4)}) {
      const int enough = most == 1000 ? best : std::max(1, best / 2);
      const std::vector<size_t> packed = packing.pack(sets.worth, enough, most);
      EXPECT_TRUE(most < 1000 || best == 0 || !packed.empty());
      EXPECT_LE(static_cast<int>(packed.size()), most);
      int worth = 0;
      std::vector<Counts> left = hosts;
      for (const size_t set : packed) {
        const bool fits = std::any_of(left.begin(), left.end(), [&](Counts& host) {
          Counts fewer = host;
          if (!take(sets.needs[set], 1, &fewer)) return false;
          host = fewer;
          return true;
        });
        EXPECT_TRUE(fits);
        worth += sets.worth[set];
      }
      EXPECT_TRUE(packed.empty() || worth >= enough);
      found += !packed.empty();
    }
  }
  EXPECT_GT(found, 300);
}

/// A host of very many unlike devices is left to packings over hosts.
TEST(HostPacking, PassesOverHostsOfVeryManyUnlikeDevices) {
  const HostPacking packing({{12, 12, 12}, {4, 4, 4}}, {{1, 1, 1}});
  EXPECT_EQ(packing.pack({1}, 4, 100).size(), 4u);
  EXPECT_TRUE(packing.pack({1}, 5, 100).empty());
}

/// Sets of one and two devices of 24 alike, of which those of two cannot compute anything.
class OnlySingles : public ReplicaSets {
 public:
  size_t count() const override { return sets_.size(); }
  const GroupCounts& devices(size_t set) const override { return sets_[set]; }
  double seconds(size_t set, int samples) override { return set == 0 ? samples : kNever; }
  int grains_within(size_t set, const GrainLimit& limit) override {
    if (seconds(set, 1) > limit.seconds) return 0;
    return static_cast<int>(std::min<double>(limit.most, limit.seconds));
  }

 private:
  std::vector<GroupCounts> sets_{{1}, {2}};
};

TEST(ReplicaPacking, NeverTakesSetsThatCannotCompute) {
  OnlySingles sets;
  const PackingProblem problem{.devices = {24},
                               .most_devices = 24,
                               .grains = 48,
                               .grain = 1,
                               .least_replicas = 12,
                               .most_replicas = 12};
  const Packings packings = best_packings(problem, sets, 0);
  EXPECT_NEAR(packings.least_seconds, 4, 0.01);
  for (const Packing& packing : packings.found) {
    EXPECT_EQ(packing.size(), 12U);
    for (const size_t set : packing) EXPECT_EQ(set, 0U);
  }
}

TEST(ReplicaPacking, TriesAllDevicesInReplicasOfOneSet) {
  /// Of one group or of one of each, twice as quick in a row.
  class Rows : public ReplicaSets {
   public:
    size_t count() const override { return sets_.size(); }
    const GroupCounts& devices(size_t set) const override { return sets_[set]; }
    double seconds(size_t set, int samples) override { return samples * (set == 2 ? 0.5 : 1); }
    int grains_within(size_t set, const GrainLimit& limit) override {
      return static_cast<int>(std::min<double>(limit.most, limit.seconds * (set == 2 ? 2 : 1)));
    }

   private:
    std::vector<GroupCounts> sets_{{1, 0}, {0, 1}, {1, 1}};
  } sets;
  const PackingProblem problem{.devices = {30, 30},
                               .most_devices = 60,
                               .grains = 600,
                               .grain = 1,
                               .least_replicas = 1,
                               .most_replicas = 60};
  const Packings packings = best_packings(problem, sets, 0);
  EXPECT_THAT(packings.found, ::testing::Contains(Packing(30, 2)));
}

/// Sets of 1 to 8 like devices, each of which computes a sample in a second.
class LikeDevices : public ReplicaSets {
 public:
  LikeDevices() {
    for (int devices = 1; devices <= 8; ++devices) sets_.push_back({devices});
  }
  size_t count() const override { return sets_.size(); }
  const GroupCounts& devices(size_t set) const override { return sets_[set]; }
  double seconds(size_t set, int samples) override { return 1.0 * samples / sets_[set][0]; }
  int grains_within(size_t set, const GrainLimit& limit) override {
    return std::min(limit.most, static_cast<int>(limit.seconds * sets_[set][0] / limit.grain));
  }

 private:
  std::vector<GroupCounts> sets_;
};

PackingProblem of_like_devices() {
  PackingProblem problem;
  problem.devices = {63};
  problem.most_devices = 63;
  problem.grains = 1024;
  problem.grain = 1;
  problem.most_replicas = 63;
  return problem;
}

TEST(ReplicaPacking, ProvesNoMoreThanTheLimitBelowWhichItLooked) {
  PackingProblem problem = of_like_devices();
  problem.only_least = true;
  LikeDevices sets;
  const double least = best_packings(problem, sets, 0).least_seconds;
  problem.limit = 0.9 * least;
  const Packings none = best_packings(problem, sets, 0);
  EXPECT_TRUE(none.found.empty());
  EXPECT_EQ(none.least_seconds, problem.limit);
  problem.limit = 1.1 * least;
  const Packings some = best_packings(problem, sets, 0);
  EXPECT_FALSE(some.found.empty());
  EXPECT_NEAR(some.least_seconds, least, 1e-5 * least);
}

TEST(ReplicaPacking, OfOneSetMakeAReplicaOfWhatIsLeftOver) {
  PackingProblem problem = of_like_devices();
  LikeDevices sets;
  Packing fours(15, 3), with_three = fours;
  with_three.push_back(2);
  EXPECT_THAT(best_packings(problem, sets, 0).found, ::testing::IsSupersetOf({fours, with_three}));
  problem.least_replicas = 16;
  const Packings more = best_packings(problem, sets, 0);
  EXPECT_THAT(more.found, ::testing::Contains(with_three));
  EXPECT_THAT(more.found, ::testing::Not(::testing::Contains(fours)));
}

/// Two devices: in a second one computes two whole grains, or the short one alone, and the other
/// the short one.
class ShortTakesLonger : public ReplicaSets {
 public:
  size_t count() const override { return 2; }
  const GroupCounts& devices(size_t set) const override { return devices_[set]; }
  double seconds(size_t, int) override { return kNever; }
  int grains_within(size_t set, const GrainLimit& limit) override {
    if (limit.seconds < 1) return 0;
    if (set == 0) return limit.missing > 0 ? 1 : 2;
    return limit.missing > 0 ? 1 : 0;
  }

 private:
  const std::vector<GroupCounts> devices_{{1, 0}, {0, 1}};
};

TEST(BestPackings, OfFewDevicesWhoeverTakesTheShortGrain) {
  ShortTakesLonger sets;
  const PackingProblem problem{.devices = {1, 1},
                               .most_devices = 2,
                               .grains = 3,
                               .grain = 8,
                               .missing = 3,
                               .least_replicas = 2,
                               .most_replicas = 2};
  const Packings packings = best_packings(problem, sets, 0.1);
  ASSERT_EQ(packings.found.size(), 1U);
  EXPECT_THAT(packings.found.front(), ::testing::ElementsAre(0, 1));
  EXPECT_NEAR(packings.least_seconds, 1, 1e-5);
}

/// As measured, nine samples take a device longer than ten do, and a limit that ten keep to leaves
/// fewer than nine.
class TimesThatFall : public OnlySingles {
 public:
  double seconds(size_t set, int samples) override {
    return set == 0 ? (samples == 9 ? 9 : 0.8 * samples) : kNever;
  }
  int grains_within(size_t set, const GrainLimit& limit) override {
    int grains = 0;
    while (grains < limit.most && seconds(set, grains + 1) <= limit.seconds) ++grains;
    return grains;
  }
};

TEST(BestPackings, OfASingleReplicaWhateverWasMeasuredOfFewerSamples) {
  TimesThatFall sets;
  const PackingProblem problem{
      .devices = {2}, .most_devices = 2, .grains = 10, .grain = 1, .most_replicas = 1};
  const Packings packings = best_packings(problem, sets, 0.1);
  ASSERT_EQ(packings.found.size(), 1U);
  EXPECT_THAT(packings.found.front(), ::testing::ElementsAre(0));
  EXPECT_EQ(packings.least_seconds, 8);
}

}  // namespace
}  // namespace motley
