// Gradients summed on the GPUs: two CUDA devices (compiled for the CPU) and a stand-in for NCCL,
// against the same training through host memory.

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "comm/device_communicator.h"
#include "tests/e2e/small_run.h"

namespace motley::testing {
namespace {

using ::testing::HasSubstr;

/// How many communicators have been left in good order so far.
int left_in_good_order() {
  void* library = dlopen(kNcclLibrary, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<int (*)(const char*)>(dlsym(library, "nccl_stand_in_count"))("destroy");
}

class IslandTraining : public ::testing::TestWithParam<Numerics> {
 protected:
  /// On two GPUs; like ones make an island.
  Attempt attempt(const std::string& name, bool alike) {
    Attempt two = small_attempt(
        {.grains = {2, 1}, .numerics = GetParam(), .steps = 3, .device = DeviceKind::kCuda},
        scratch_.path() + "/" + name);
    for (size_t i = 0; i < two.fleet.devices.size(); ++i)
      two.fleet.devices[i].uuid = "GPU-00000000-0000-0000-0000-00000000000" + std::to_string(i);
    if (!alike) two.fleet.devices[1].type += "-other";
    return two;
  }

  TemporaryDirectory scratch_;
};

TEST_P(IslandTraining, SumsAsHostsDo) {
  Recorder on_gpus, through_hosts;
  const int before = left_in_good_order();
  const auto here = run_small(attempt("gpus", true), on_gpus);
  ASSERT_TRUE(here) << here.error().to_string();
  EXPECT_EQ(left_in_good_order(), before + 2) << "it did not go through NCCL";
  const auto there = run_small(attempt("hosts", false), through_hosts);
  ASSERT_TRUE(there) << there.error().to_string();
  EXPECT_EQ(left_in_good_order(), before + 2);
  // Of two terms the sum is the same in either order, whatever the numerics.
  EXPECT_EQ(here->weights_xxh3, there->weights_xxh3);
  EXPECT_EQ(on_gpus.loss_bits(), through_hosts.loss_bits());
}

TEST_P(IslandTraining, ALostPeerEndsTheAttempt) {
  setenv("MOTLEY_NCCL_STAND_IN", "fails_at=0:1 fails_at=1:1", 1);
  Recorder recorder;
  const auto ended = run_small(attempt("lost", true), recorder);
  unsetenv("MOTLEY_NCCL_STAND_IN");
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::kPeerLost);
  EXPECT_THAT(ended.error().message, HasSubstr("NCCL"));
}

INSTANTIATE_TEST_SUITE_P(All, IslandTraining, ::testing::Values(Numerics::kFast, Numerics::kExact),
                         [](const auto& of) {
                           return of.param == Numerics::kExact ? "Exact" : "Fast";
                         });

}  // namespace
}  // namespace motley::testing
