#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <numeric>

namespace motley {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {
 protected:
  ThreadPool pool_{GetParam()};
};

TEST_P(ThreadPoolTest, CallsEachIndexOnceAndWaitsForAll) {
  for (const int64_t count : {0, 1, 2, 3, 17, 1000}) {
    const auto calls = std::make_unique<std::atomic<int>[]>(static_cast<size_t>(count) + 1);
    pool_.run(count, [&](int64_t index, int thread) {
      EXPECT_GE(thread, 0);
      EXPECT_LT(thread, pool_.threads());
      calls[static_cast<size_t>(index)].fetch_add(1, std::memory_order_relaxed);
    });
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(calls[static_cast<size_t>(i)].load(), 1) << i;
  }
}

// What kernels rely on: a thread number is never in use twice at once, and after run() the caller
// sees what the bodies wrote, without further synchronisation.
TEST_P(ThreadPoolTest, ThreadNumbersAreExclusiveAndWritesAreVisible) {
  std::vector<int64_t> by_thread(static_cast<size_t>(pool_.threads()));
  std::vector<int64_t> by_index(100);
  int64_t expected = 0;
  for (int round = 0; round < 300; ++round) {
    pool_.run(100, [&](int64_t index, int thread) {
      by_thread[static_cast<size_t>(thread)] += index;
      by_index[static_cast<size_t>(index)] += round;
    });
    expected += 99 * 100 / 2;
    EXPECT_EQ(std::accumulate(by_thread.begin(), by_thread.end(), int64_t{0}), expected);
  }
  for (const int64_t sum : by_index) EXPECT_EQ(sum, 299 * 300 / 2);
}

TEST_P(ThreadPoolTest, MayBeDestroyedUnused) {
  for (int i = 0; i < 20; ++i) ThreadPool unused(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 8));

TEST(ThreadPoolDeathTest, RefusesNestedUse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto nest = [](int threads) {
    ThreadPool pool(threads);
    pool.run(4, [&](int64_t, int) { pool.run(1, [](int64_t, int) {}); });
  };
  EXPECT_DEATH(nest(1), "inside parallel_for");
  EXPECT_DEATH(nest(3), "inside parallel_for");
}

}  // namespace
}  // namespace motley
