// Which devices would do for a job, against trying all.

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "scheduler/policies/queue_view.h"

namespace motley {
namespace {

/// All sets of these.
std::vector<PoolCounts> sets_of(const PoolCounts& from) {
  std::vector<PoolCounts> sets{PoolCounts(from.size(), 0)};
  for (size_t pool = 0; pool < from.size(); ++pool) {
    const std::vector<PoolCounts> so_far = sets;
    for (int count = 1; count <= from[pool]; ++count)
      for (PoolCounts set : so_far) {
        set[pool] = count;
        sets.push_back(std::move(set));
      }
  }
  return sets;
}

class RandomAlternative {
 public:
  explicit RandomAlternative(unsigned seed) : random_(seed) {}

  Alternative alternative() {
    Alternative made;
    made.limit = counts(3);
    made.least = 1 + below(3);
    made.most = made.least + below(7);
    made.mix = below(4) > 0;
    for (int i = below(4); i > 0; --i) made.unfit.push_back(counts(2));
    return made;
  }
  PoolCounts counts(int most) {
    PoolCounts made(3, 0);
    for (int& count : made) count = below(most + 1);
    return made;
  }

 private:
  int below(int end) { return static_cast<int>(random_() % static_cast<unsigned>(end)); }

  std::mt19937 random_;
};

TEST(Alternative, FindsWhatItAdmits) {
  int found = 0, unfit = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomAlternative random(seed);
    const Alternative alternative = random.alternative();
    const PoolCounts from = random.counts(4);
    bool any = false;
    for (const PoolCounts& set : sets_of(from)) any |= alternative.admits(set);
    EXPECT_EQ(alternative.found_in(from), any);
    std::vector<size_t> order(from.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const PoolCounts first = alternative.first_of(from, order);
    EXPECT_TRUE(!alternative.mix || first.empty() != any);
    if (first.empty()) continue;
    EXPECT_TRUE(within(first, from));
    EXPECT_TRUE(!alternative.mix || alternative.admits(first));
    ++found;
    unfit += sum_of(first) > alternative.least ? 1 : 0;
  }
  EXPECT_GT(found, 500);
  EXPECT_GT(unfit, 100);
}

TEST(Alternative, NeedsMoreOfAPoolWhereSoManyWereTooLittle) {
  for (unsigned seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Alternative alternative = RandomAlternative(seed).alternative();
    for (size_t pool = 0; pool < 3; ++pool) {
      PoolCounts alone(3, 0);
      int least = 0;
      for (int count = 1; count <= alternative.limit[pool] && least == 0; ++count) {
        alone[pool] = count;
        if (alternative.admits(alone)) least = count;
      }
      EXPECT_TRUE(least == 0 || alternative.least_in(pool) == least);
    }
  }
}

}  // namespace
}  // namespace motley
