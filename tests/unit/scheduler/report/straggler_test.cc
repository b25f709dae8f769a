#include "scheduler/report/straggler.h"

#include <gtest/gtest.h>

#include <vector>

namespace motley {
namespace {

std::optional<Straggler> found(const std::vector<RankTime>& ranks) { return find_straggler(ranks); }

TEST(Straggler, IsTheOneTheOthersWaitFor) {
  const auto straggler = found({{0.75, 0.25}, {0.7, 0.3}, {0.99, 0.01}});
  ASSERT_TRUE(straggler);
  EXPECT_EQ(straggler->rank, 2u);
  EXPECT_DOUBLE_EQ(straggler->others_wait_share, 0.275);
  EXPECT_EQ(straggler_text({3, 0.24}, "slow-card", "a2"),
            "rank 3 (slow-card on a2) holds the others up: they wait 24 % of the time");
}

TEST(Straggler, IsNobodyWhereAllWaitForTheNetwork) {
  EXPECT_FALSE(found({{0.6, 0.4}, {0.65, 0.35}, {0.6, 0.4}}));
}

TEST(Straggler, IsNobodyWhereTheOthersHardlyWait) {
  EXPECT_FALSE(found({{0.92, 0.08}, {0.93, 0.07}, {1.0, 0.0}}));
}

TEST(Straggler, IsNoneOfTwoThatAreEquallySlow) {
  EXPECT_FALSE(found({{1.0, 0.0}, {0.98, 0.02}, {0.4, 0.6}}));
}

TEST(Straggler, NeedsOthers) {
  EXPECT_FALSE(found({}));
  EXPECT_FALSE(found({{1.0, 0.0}}));
  EXPECT_FALSE(found({{0.0, 0.0}, {0.0, 0.0}}));
}

TEST(Straggler, SharesAreOfTheRanksOwnTime) {
  EXPECT_EQ(waiting_share({0.0, 0.0}), 0);
  EXPECT_EQ(waiting_share({3.0, 1.0}), 0.25);
}

}  // namespace
}  // namespace motley
