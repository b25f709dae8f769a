// Uneven owners against every deal of a lattice, and whether what is said of them holds.

#include "planner/state/owner_deal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace motley {
namespace {

int draw(std::mt19937& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}

/// Of 2 to 4 ranks that hold alike one or two parts of a model, some of them both.
OwnerProblem random_problem(std::mt19937& random) {
  OwnerProblem problem;
  const int ranks = draw(random, 2, 4);
  HeldAlike all{{}, 1200};
  for (int rank = 0; rank < ranks; ++rank) {
    all.holders.emplace_back(rank);
    problem.update.push_back(1e-5 * draw(random, 0, 9));
    problem.exchange.push_back(1e-6 * draw(random, 0, 9));
    problem.most.push_back(draw(random, 0, 2) == 0 ? kUnlimited : draw(random, 0, 1200));
  }
  problem.groups.push_back(all);
  if (ranks > 2 && draw(random, 0, 1) == 0) {
    HeldAlike some{{}, 600};
    for (int rank = draw(random, 0, 1); rank < ranks; rank += draw(random, 1, 2))
      some.holders.emplace_back(rank);
    problem.groups.push_back(some);
  }
  return problem;
}

/// Seconds of a deal in elements; infinite where a rank has no room.
double price(const OwnerProblem& problem, const std::vector<OwnerShares>& deal) {
  const size_t ranks = problem.most.size();
  std::vector<double> own(ranks, 0), exchanged(ranks, 0), beyond(ranks, 0);
  for (size_t g = 0; g < deal.size(); ++g)
    for (size_t i = 0; i < deal[g].size(); ++i) {
      const auto rank = static_cast<size_t>(problem.groups[g].holders[i].value());
      const auto holders = static_cast<double>(deal[g].size());
      own[rank] += deal[g][i];
      if (holders < 2) continue;
      exchanged[rank] += static_cast<double>(problem.groups[g].elements);
      beyond[rank] = std::max(beyond[rank], holders - 2);
    }
  double update = 0, exchange = 0;
  for (size_t r = 0; r < ranks; ++r) {
    if (own[r] > problem.most[r] * (1 + 1e-9)) return kUnlimited;
    update = std::max(update, problem.update[r] * own[r]);
    exchange = std::max(exchange, problem.exchange[r] * (exchanged[r] + beyond[r] * own[r]));
  }
  return update + exchange;
}

/// The least price of all deals in steps of a tenth of what is held alike.
double best_of_lattice(const OwnerProblem& problem) {
  double best = kUnlimited;
  std::vector<OwnerShares> deal;
  for (const HeldAlike& group : problem.groups) deal.emplace_back(group.holders.size(), 0.0);
  constexpr int kSteps = 10;
  const std::function<void(size_t, size_t, int)> go_on = [&](size_t group, size_t holder,
                                                             int left) {
    if (group == deal.size()) {
      best = std::min(best, price(problem, deal));
      return;
    }
    const double step = static_cast<double>(problem.groups[group].elements) / kSteps;
    if (holder + 1 == deal[group].size()) {
      deal[group][holder] = left * step;
      return go_on(group + 1, 0, kSteps);
    }
    for (int own = 0; own <= left; ++own) {
      deal[group][holder] = own * step;
      go_on(group, holder + 1, left - own);
    }
  };
  go_on(0, 0, kSteps);
  return best;
}

TEST(OwnerDeal, NoDealOfALatticeIsQuicker) {
  std::mt19937 random(20261124);
  int possible = 0, uneven = 0;
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const OwnerProblem problem = random_problem(random);
    const OwnerDeal best = best_owners(problem);
    const double lattice = best_of_lattice(problem);
    if (!best.possible()) {
      EXPECT_EQ(lattice, kUnlimited);
      continue;
    }
    ++possible;
    EXPECT_LE(best.seconds, lattice * (1 + 1e-6) + 1e-12);
    EXPECT_NEAR(price(problem, best.shares) / std::max(best.seconds, 1e-12), 1, 1e-5);
    for (size_t g = 0; g < best.shares.size(); ++g) {
      double sum = 0;
      for (const double own : best.shares[g]) {
        EXPECT_GE(own, 0);
        sum += own;
      }
      EXPECT_NEAR(sum / static_cast<double>(problem.groups[g].elements), 1, 1e-6);
      const auto [least, most] = std::minmax_element(best.shares[g].begin(), best.shares[g].end());
      if (*most > 1.1 * *least) ++uneven;
    }
  }
  EXPECT_GT(possible, 200);
  EXPECT_GT(uneven, 100);
}

TEST(OwnerDeal, WhoUpdatesTwiceAsFastOwnsTwiceAsMuch) {
  const OwnerProblem problem{{{{Rank(0), Rank(1)}, 300}}, {kUnlimited, kUnlimited}, {1, 2}, {0, 0}};
  const OwnerDeal best = best_owners(problem);
  ASSERT_TRUE(best.possible());
  EXPECT_NEAR(best.shares[0][0], 200, 1e-3);
  EXPECT_NEAR(best.shares[0][1], 100, 1e-3);
}

TEST(OwnerDeal, WhoHasNoRoomOwnsNothing) {
  const OwnerProblem problem{
      {{{Rank(0), Rank(1), Rank(2)}, 300}}, {kUnlimited, 0, 50}, {1, 1, 1}, {0, 0, 0}};
  const OwnerDeal best = best_owners(problem);
  ASSERT_TRUE(best.possible());
  EXPECT_NEAR(best.shares[0][0], 250, 1e-3);
  EXPECT_EQ(best.shares[0][1], 0);
}

}  // namespace
}  // namespace motley
