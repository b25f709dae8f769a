// A CPU device computes the same bits on any number of threads; the thread sanitizer watches.

#include <gmock/gmock.h>

#include "tests/contract/device_ops/op_cases.h"

namespace motley::testing {
namespace {

class CpuThreads : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Of, CpuThreads, ::testing::Values(2, 3),
                         ::testing::PrintToStringParamName());

TEST_P(CpuThreads, DoNotMatterToTheBits) {
  DeviceSpec spec;
  spec.kind = DeviceKind::kCpu;
  const auto one = open_case({"", spec});
  spec.threads = GetParam();
  const auto several = open_case({"", spec});
  for (const OpCase& op : op_cases())
    EXPECT_EQ(bits_of(*one, op.trial), bits_of(*several, op.trial)) << op.name;
}

TEST(CpuDevice, SquareSumDoesNotDependOnThreads) {
  Random random(5);
  const Values x = random.normal(1500001);
  std::vector<double> results;
  for (const int threads : {1, 2, 3, 4}) {
    DeviceSpec spec;
    spec.kind = DeviceKind::kCpu;
    spec.threads = threads;
    const auto device = open_case({"", spec});
    Bench bench(*device);
    const SquareSumArgs args{bench.put(x), bench.zeros(8), static_cast<int64_t>(x.size())};
    bench.run(args);
    results.push_back(bench.get_double(args.out));
  }
  EXPECT_THAT(results, ::testing::Each(results[0]));
}

}  // namespace
}  // namespace motley::testing
