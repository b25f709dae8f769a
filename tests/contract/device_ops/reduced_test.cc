// Devices that compute in reduced precision: what the float64 reference computes from the same
// rounded operands, rounded once.

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/contract/device_ops/op_cases.h"
#include "tests/support/test_device.h"

namespace motley::testing {
namespace {

constexpr auto reduced_device_name = [](const auto& test) { return test.param.name; };
class EachReducedDevice : public EachDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, EachReducedDevice, ::testing::ValuesIn(reduced_device_cases()),
                         reduced_device_name);

TEST_P(EachReducedDevice, ComputesWhatTheReferenceComputes) {
  const double rounding = tolerance_of_rounding(device_->precision());
  for (const OpCase& op : op_cases()) {
    SCOPED_TRACE(op.name);
    expect_as_reference(*device_, op.tolerance + rounding, op.least, op.trial);
  }
}

// However the parts of its sums come to be added.
TEST_P(EachReducedDevice, AttentionRepeatsItsBits) {
  for (const OpCase& op : op_cases()) {
    if (!op.name.starts_with("attention")) continue;
    SCOPED_TRACE(op.name);
    const auto bits = [&] {
      Bench bench(*device_);
      std::vector<Values> results;
      for (const Address result : op.trial(bench)) results.push_back(bench.get(result));
      return results;
    };
    const std::vector<Values> first = bits();
    EXPECT_EQ(bits(), first);
  }
}

TEST_P(EachReducedDevice, RoundsWhatItStoresOnce) {
  Random random(20);
  const int64_t count = 1000;
  Bench bench(*device_), exact(reference_device(), device_->precision());
  const auto sum = [&](Bench& on) {
    Random same(20);
    const AddArgs args{on.put(same.normal(count)), on.put(same.normal(count)), on.poisoned(count),
                       count};
    on.run(args);
    return on.get(args.out);
  };
  const Values rounded = sum(bench), whole = sum(exact);
  for (size_t i = 0; i < whole.size(); ++i)
    EXPECT_LE(std::abs(rounded[i] - whole[i]),
              rounding_of(device_->precision()) * std::abs(whole[i]) * 1.01);
}

TEST_P(EachReducedDevice, SumsOfGradientsAreNotRounded) {
  // One row of ones after another: in bf16 the sum would stay at 256.
  constexpr int64_t kRows = 5000;
  Bench bench(*device_);
  const BiasGradientArgs args{
      .in = bench.put(Values(kRows, 1)), .out = bench.poisoned(1), .rows = kRows, .n = 1};
  bench.run(args);
  EXPECT_EQ(bench.get(args.out)[0], kRows);
}

TEST(ProductsInTf32, RoundTheirFactorsAndSumInFull) {
  constexpr int64_t kSize = 48;
  DeviceSpec spec;
  spec.kind = test_device();
  const auto device = open_device(spec, Precision::kTf32);
  ASSERT_TRUE(device) << device.error().to_string();
  EXPECT_EQ((*device)->element_bytes(), 4);
  Random random(24);
  const Values a = random.normal(kSize * kSize), b = random.normal(kSize * kSize);
  const auto product = [&](Device& on) {
    Bench bench(on);
    const MatmulArgs args{.a = bench.put(a),
                          .b = bench.put(b),
                          .c = bench.poisoned(kSize * kSize),
                          .m = kSize,
                          .n = kSize,
                          .k = kSize};
    bench.run(args);
    return bench.get(args.c);
  };
  const Values rounded = product(**device), exact = product(reference_device());
  double largest = 0, difference = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    largest = std::max(largest, std::abs(exact[i]));
    difference = std::max(difference, std::abs(rounded[i] - exact[i]));
  }
  EXPECT_LT(difference, 0x1p-10 * largest);
  EXPECT_GT(difference, 0x1p-16 * largest) << "the factors were not rounded";
}

// Whoever computes the norm again has only the stored sum.
TEST(LayerNormOfASum, IsThatOfTheSumAsItIsStored) {
  constexpr int64_t kRows = 9, kWidth = 72;
  std::vector<DeviceCase> cases = device_cases();
  for (const DeviceCase& reduced : reduced_device_cases()) cases.push_back(reduced);
  for (const DeviceCase& device_case : cases) {
    SCOPED_TRACE(device_case.name);
    const auto device = open_case(device_case);
    Bench bench(*device);
    Random random(23);
    LayerNormForwardArgs args{.x = bench.put(random.normal(kRows * kWidth)),
                              .gain = bench.put(random.normal(kWidth)),
                              .bias = bench.put(random.normal(kWidth)),
                              .out = bench.poisoned(kRows * kWidth),
                              .mean = bench.poisoned(kRows),
                              .rstd = bench.poisoned(kRows),
                              .rows = kRows,
                              .width = kWidth,
                              .residual = bench.put(random.normal(kRows * kWidth)),
                              .sum = bench.poisoned(kRows * kWidth)};
    bench.run(args);
    const Values sum = bench.get(args.sum), out = bench.get(args.out), rstd = bench.get(args.rstd);
    const AddArgs add{args.x, args.residual, bench.poisoned(kRows * kWidth), kRows * kWidth};
    bench.run(add);
    EXPECT_EQ(sum, bench.get(add.out));
    args.x = args.sum;
    args.residual = args.sum = {};
    bench.run(args);
    EXPECT_EQ(out, bench.get(args.out));
    EXPECT_EQ(rstd, bench.get(args.rstd));
  }
}

TEST_P(EachReducedDevice, NotANumberStaysNotANumber) {
  Bench bench(*device_);
  Values x(17, 1.0);
  x[3] = std::numeric_limits<double>::quiet_NaN();
  const AddArgs args{bench.put(x), bench.put(x), bench.poisoned(17), 17};
  bench.run(args);
  EXPECT_TRUE(std::isnan(bench.get(args.out)[3]));
}

}  // namespace
}  // namespace motley::testing
