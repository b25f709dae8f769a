// Every operation once, in all precisions: what compute-sanitizer looks at (tests/gpu/correct.py).

#include "tests/contract/device_ops/op_cases.h"

namespace motley::testing {
namespace {

std::vector<DeviceCase> every_precision() {
  std::vector<DeviceCase> cases = device_cases();
  cases.pop_back();  // the reference
  for (const DeviceCase& reduced : reduced_device_cases()) cases.push_back(reduced);
  return cases;
}

class SmallCases : public EachDevice {};
constexpr auto precision_name = [](const auto& test) { return test.param.name; };
INSTANTIATE_TEST_SUITE_P(Devices, SmallCases, ::testing::ValuesIn(every_precision()),
                         precision_name);

TEST_P(SmallCases, ComputeWhatTheReferenceComputes) {
  const double rounding = tolerance_of_rounding(device_->precision());
  for (const OpCase& op : small_op_cases()) {
    SCOPED_TRACE(op.name);
    expect_as_reference(*device_, op.tolerance + rounding, op.least, op.trial);
  }
}

// What has no case among them.
TEST_P(SmallCases, OfSumsAndZeros) {
  constexpr int64_t kCount = kSquareSumBlock + 3;
  Random random(40);
  Bench bench(*device_);
  const Values x = random.normal(kCount);
  const Address sums = bench.zeros(kCount * 8), overflow = bench.zeros(8);
  bench.run(AccumulateFixedArgs{bench.put(x), sums, overflow, bench.put(std::vector<int32_t>{20}),
                                kCount});
  EXPECT_EQ(bench.get_int64(overflow)[0], 0);
  EXPECT_NEAR(static_cast<double>(bench.get_int64(sums)[kCount - 1]), x.back() * 0x1p20, 0.5);

  SquareSumArgs squares{bench.put(x), bench.put(std::vector<int64_t>{-1}), kCount};
  bench.run(squares);
  const double whole = bench.get_double(squares.out);
  squares.runs = bench.put(std::vector<ParameterRun>{{.count = kCount}}, &squares.blocks);
  squares.run_count = 1;
  squares.parts = bench.put(std::vector<int64_t>(static_cast<size_t>(squares.blocks), -1));
  squares.out = bench.put(std::vector<int64_t>{-1});
  bench.run(squares);
  EXPECT_NEAR(bench.get_double(squares.out), whole, 1e-12 * whole);

  const Address zero = bench.put(std::vector<int64_t>(9, -1));
  bench.run(ZeroArgs{.out = zero, .bytes = 67});
  EXPECT_EQ(bench.get_int64(zero)[7], 0);
  EXPECT_NE(bench.get_int64(zero)[8], 0);
}

}  // namespace
}  // namespace motley::testing
