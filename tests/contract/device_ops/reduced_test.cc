// Devices that compute in reduced precision: what the float64 reference computes from the same
// rounded operands, rounded once.

#include <cmath>
#include <limits>

#include "tests/contract/device_ops/op_cases.h"

namespace motley::testing {
namespace {

constexpr auto reduced_device_name = [](const auto& test) { return test.param.name; };
class EachReducedDevice : public EachDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, EachReducedDevice, ::testing::ValuesIn(reduced_device_cases()),
                         reduced_device_name);

/// Half a unit in the last place, as a share of the number.
double rounding_of(Precision precision) { return precision == Precision::kBf16 ? 0x1p-8 : 0x1p-11; }

TEST_P(EachReducedDevice, ComputesWhatTheReferenceComputes) {
  // An operation that reads what another has written may meet it rounded the other way.
  const double rounding = 2 * rounding_of(device_->precision());
  for (const OpCase& op : op_cases()) {
    SCOPED_TRACE(op.name);
    expect_as_reference(*device_, op.tolerance + rounding, op.trial);
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
