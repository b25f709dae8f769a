#include "comm/call_watch.h"

#include <gtest/gtest.h>

#include <atomic>

namespace motley {
namespace {

TEST(CallWatch, ACallThatDoesNotReturnEndsWithItsName) {
  std::atomic<bool> ended = false;
  std::string told;
  const std::string operation = "barrier";
  CallWatch watch(std::chrono::milliseconds(40), [&](const std::string& stuck) {
    told = stuck;
    ended = true;
    ended.notify_all();
  });
  {
    const CallWatch::Call call(watch, "MPI_Testsome", operation);
    ended.wait(false);
  }
  EXPECT_EQ(told, "MPI_Testsome has not returned for 0.04 s in barrier");
}

TEST(CallWatch, CallsThatReturnAreLeftAlone) {
  std::atomic<int> ended = 0;
  const std::string operation = "barrier";
  {
    CallWatch watch(std::chrono::seconds(600), [&](const std::string&) { ++ended; });
    for (int i = 0; i < 1000; ++i) const CallWatch::Call call(watch, "MPI_Test", operation);
  }
  EXPECT_EQ(ended, 0);
}

}  // namespace
}  // namespace motley
