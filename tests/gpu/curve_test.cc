// The same training on the device under test and on the CPU.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/e2e/small_run.h"

namespace motley::testing {
namespace {

/// Both sum the same products in another order; training doubles such differences now and then.
constexpr double kTolerance = 1e-3;

std::vector<double> losses_on(DeviceKind device) {
  const SmallRun run{
      .grains = {3},
      .grain = 4,
      .model = {.type = "gpt", .layers = 3, .heads = 4, .width = 64, .context = 48, .vocab = 256},
      .lr = 1e-3,
      .steps = 200,
      .device = device};
  const TemporaryDirectory scratch;
  Recorder recorder;
  const auto outcome = run_small(small_attempt(run, scratch.path()), recorder);
  EXPECT_TRUE(outcome) << outcome.error().to_string();
  std::vector<double> losses;
  for (const auto& [step, report] : recorder.account(0).steps) losses.push_back(report.loss);
  return losses;
}

TEST(Curve, FollowsTheCpu) {
  const auto cpu = losses_on(DeviceKind::kCpu), tested = losses_on(test_device());
  ASSERT_EQ(cpu.size(), 200U);
  ASSERT_EQ(tested.size(), cpu.size());
  EXPECT_LT(cpu.back(), 0.7 * cpu.front()) << "nothing was learnt";
  double worst = 0;
  for (size_t step = 0; step < cpu.size(); ++step)
    worst = std::max(worst, std::abs(tested[step] - cpu[step]) / cpu[step]);
  std::printf("200 steps, loss %.4f -> %.4f; largest difference %.1e\n", cpu.front(), cpu.back(),
              worst);
  EXPECT_LE(worst, kTolerance);
}

}  // namespace
}  // namespace motley::testing
