// Every device computes what the float64 reference computes.

#include <cmath>
#include <limits>

#include "tests/contract/device_ops/op_cases.h"

namespace motley::testing {
namespace {

constexpr auto device_name = [](const auto& test) { return test.param.name; };
INSTANTIATE_TEST_SUITE_P(Devices, EachDevice, ::testing::ValuesIn(device_cases()), device_name);

TEST_P(EachDevice, ComputesWhatTheReferenceComputes) {
  for (const OpCase& op : op_cases()) {
    SCOPED_TRACE(op.name);
    expect_as_reference(*device_, op.tolerance, op.least, op.trial);
  }
}

// A plan moves tensors to other places in memory; that must not move a bit.
TEST_P(EachDevice, BitsDoNotDependOnAddresses) {
  for (const OpCase& op : op_cases()) {
    const auto bits = bits_of(*device_, op.trial);
    for (const int64_t offset : {int64_t{0}, op.alignment, 5 * op.alignment})
      EXPECT_EQ(bits, bits_of(*device_, op.trial, offset)) << op.name << " at " << offset;
  }
}

TEST_P(EachDevice, OperationsAllocateNothing) {
  Bench bench(*device_);
  const MatmulArgs args{.a = bench.put(Values(600, 1)),
                        .b = bench.put(Values(600, 1)),
                        .c = bench.poisoned(900),
                        .m = 30,
                        .n = 30,
                        .k = 20};
  const int64_t before = device_->allocation_count();
  EXPECT_EQ(before, 3);
  bench.run(args);
  EXPECT_EQ(device_->allocation_count(), before);
}

TEST_P(EachDevice, ZeroLeavesTheRestAlone) {
  for (const int64_t bytes : {0, 1, 7, 64, 100}) {
    Bench bench(*device_);
    const Address out = bench.put(std::vector<int64_t>(20, -1));
    bench.run(ZeroArgs{.out = out, .bytes = bytes});
    const auto stored = bench.bytes(out);
    for (size_t i = 0; i < stored.size(); ++i)
      ASSERT_EQ(stored[i], static_cast<int64_t>(i) < bytes ? std::byte{0} : std::byte{0xff}) << i;
  }
}

TEST_P(EachDevice, ScalingSaysWhatIsNotFinite) {
  for (const double odd :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN(), 1.0}) {
    Bench bench(*device_);
    Values x(40001, 1.0);
    x[40000] = odd;
    const ScaleArgs args{.x = bench.put(x),
                         .overflow = bench.put(std::vector<int64_t>{0}),
                         .count = 40001,
                         .factor = 0.5};
    bench.run(args);
    EXPECT_EQ(bench.get_int64(args.overflow)[0], odd == 1.0 ? 0 : 1);
  }
}

// A training run that went wrong must be seen in its loss.
TEST_P(EachDevice, NotANumberStaysNotANumber) {
  Bench bench(*device_);
  Values logits(33, 1.0);
  logits[20] = std::numeric_limits<double>::quiet_NaN();
  const CrossEntropyArgs loss{.logits = bench.put(logits),
                              .targets = bench.put(std::vector<int32_t>{3}),
                              .losses = bench.zeros(8),
                              .rows = 1,
                              .vocab = 33};
  bench.run(loss);
  EXPECT_TRUE(std::isnan(bench.get(loss.losses)[0]));

  MatmulArgs gelu{.a = bench.put(Values{std::numeric_limits<double>::quiet_NaN()}),
                  .b = bench.put(Values(17, 1.0)),
                  .c = bench.put(Values(17)),
                  .m = 1,
                  .n = 17,
                  .k = 1};
  gelu.epilogue = Epilogue::kGelu;
  gelu.pre_activation = bench.put(Values(17));
  bench.run(gelu);
  for (const double value : bench.get(gelu.c)) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace motley::testing
