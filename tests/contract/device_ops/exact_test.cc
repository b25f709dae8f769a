// What `numerics: exact` and sharded optimizer state rest on: sums that do not depend on their
// order, updates that do not depend on how the elements are cut.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/contract/device_ops/bench.h"

namespace motley::testing {
namespace {

/// A sum in fixed point on a device.
class FixedSum {
 public:
  FixedSum(Device& device, int64_t count, int exponent)
      : bench_(device), count_(count), exponent_(bench_.put(std::vector<int32_t>{exponent})) {}

  void add(const Values& x) {
    bench_.run(AccumulateFixedArgs{bench_.put(x), acc_, overflow_, exponent_, count_});
  }
  std::vector<int64_t> sums() { return bench_.get_int64(acc_); }
  bool overflowed() { return bench_.get_int64(overflow_)[0] != 0; }

 private:
  Bench bench_;
  const int64_t count_;
  const Address exponent_;
  Address acc_ = bench_.zeros(count_ * 8);
  Address overflow_ = bench_.zeros(8);
};

TEST_P(EachDevice, FixedPointSumsAreTheSameInAnyOrder) {
  constexpr int64_t kCount = 20001;
  Random random(1);
  std::vector<Values> contributions;
  for (int i = 0; i < 12; ++i)
    contributions.push_back(random.normal(kCount, std::ldexp(1.0, i - 6)));
  std::vector<std::vector<int64_t>> results;
  for (int order = 0; order < 3; ++order) {
    FixedSum sum(*device_, kCount, 30);
    for (const Values& x : contributions) sum.add(x);
    results.push_back(sum.sums());
    EXPECT_FALSE(sum.overflowed());
    std::rotate(contributions.begin(), contributions.begin() + 5, contributions.end());
    std::swap(contributions[0], contributions[7]);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST_P(EachDevice, FixedPointRoundsToTheNearestEven) {
  FixedSum sum(*device_, 9, 2);
  sum.add({0.125, 0.375, 0.625, -0.125, -0.375, 0.25, -1.75, 1e-30, 0});
  EXPECT_EQ(sum.sums(), (std::vector<int64_t>{0, 2, 2, 0, -2, 1, -7, 0, 0}));
  EXPECT_FALSE(sum.overflowed());
}

TEST_P(EachDevice, FixedPointRefusesWhatDoesNotFit) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double limit = std::ldexp(kFixedLimit, -8);
  const double inside = std::nextafterf(static_cast<float>(limit), 0);
  for (const double refused : {limit, -limit, 1e30, -1e30, kNan, kInfinity, -kInfinity}) {
    FixedSum sum(*device_, 3, 8);
    sum.add({1, refused, -inside});
    EXPECT_TRUE(sum.overflowed()) << refused;
    EXPECT_EQ(sum.sums()[0], 256);
    EXPECT_EQ(sum.sums()[1], 0) << refused;
    sum.add({1, 1, 1});
    EXPECT_TRUE(sum.overflowed()) << "the flag stays";
  }
  FixedSum sum(*device_, 2, 8);
  sum.add({inside, -inside});
  EXPECT_FALSE(sum.overflowed());
  EXPECT_EQ(sum.sums()[0], static_cast<int64_t>(std::ldexp(inside, 8)));
}

TEST_P(EachDevice, FromFixedRoundsOnce) {
  // Each rounds differently when rounded to 53 bits on the way to 24.
  const std::vector<int64_t> sums{(int64_t{1} << 60) + (int64_t{1} << 36) + 1,
                                  -((int64_t{1} << 60) + (int64_t{1} << 36) + 1),
                                  (int64_t{1} << 54) + (int64_t{3} << 30) - 1,
                                  0,
                                  7,
                                  INT64_MIN};
  for (const int exponent : {0, 20, -3}) {
    Bench bench(*device_);
    const FromFixedArgs args{.acc = bench.put(sums),
                             .out = bench.poisoned(static_cast<int64_t>(sums.size())),
                             .count = static_cast<int64_t>(sums.size()),
                             .exponent = exponent};
    bench.run(args);
    const Values out = bench.get(args.out);
    for (size_t i = 0; i < sums.size(); ++i) {
      const long double exact = std::ldexp(static_cast<long double>(sums[i]), -exponent);
      const double once = device_->element_bytes() == 4
                              ? static_cast<double>(static_cast<float>(exact))
                              : static_cast<double>(exact);
      EXPECT_EQ(out[i], once) << sums[i] << " exponent " << exponent;
    }
  }
}

/// The textbook's AdamW, element by element.
struct Adam {
  double p, m = 0, v = 0;
  void step(double gradient, int t, const AdamwArgs& args) {
    const double g = gradient * args.gradient_scale;
    m = args.beta1 * m + (1 - args.beta1) * g;
    v = args.beta2 * v + (1 - args.beta2) * (g * g);
    const double m_hat = m / (1 - std::pow(args.beta1, t));
    const double v_hat = v / (1 - std::pow(args.beta2, t));
    p = p - args.lr * args.weight_decay * p - args.lr * m_hat / (std::sqrt(v_hat) + args.eps);
  }
};

/// The settings of step t, without operands.
AdamwArgs adam_settings(int t) {
  AdamwArgs args{};
  args.lr = 3e-3;
  args.beta1 = 0.9;
  args.beta2 = 0.95;
  args.eps = 1e-8;
  args.weight_decay = 0.1;
  args.gradient_scale = 1.0 / 300;
  args.correction1 = 1 - std::pow(args.beta1, t);
  args.correction2 = 1 - std::pow(args.beta2, t);
  return args;
}

constexpr int kAdamSteps = 20;

/// Parameters after kAdamSteps steps in which the elements are updated in runs that begin at
/// `cuts`.
Values train(Device& device, int64_t count, const std::vector<int64_t>& cuts) {
  Bench bench(device);
  Random random(3);
  const Address p = bench.put(random.normal(count));
  const Address m = bench.zeros(count * 8), v = bench.zeros(count * 8);
  for (int t = 1; t <= kAdamSteps; ++t) {
    const Address gradient = bench.put(random.normal(count, 200));
    for (size_t i = 0; i < cuts.size(); ++i) {
      AdamwArgs args = adam_settings(t);
      const auto at = [&](Address base) {
        return Address::of(base.as<char>() + cuts[i] * device.element_bytes());
      };
      args.parameter = at(p);
      args.gradient = at(gradient);
      args.m = at(m);
      args.v = at(v);
      args.count = (i + 1 < cuts.size() ? cuts[i + 1] : count) - cuts[i];
      bench.run(args);
    }
  }
  return bench.get(p);
}

TEST_P(EachDevice, AdamwFollowsTheFormulaOverManySteps) {
  constexpr int64_t kCount = 101;
  Random random(3);
  std::vector<Adam> adam;
  for (const double p : random.normal(kCount)) adam.push_back({p});
  for (int t = 1; t <= kAdamSteps; ++t) {
    const Values gradient = random.normal(kCount, 200);
    for (size_t i = 0; i < adam.size(); ++i) adam[i].step(gradient[i], t, adam_settings(t));
  }
  const Values trained = train(*device_, kCount, {0});
  const double tolerance = device_->element_bytes() == 4 ? 2e-6 : 1e-13;
  for (size_t i = 0; i < adam.size(); ++i) EXPECT_NEAR(trained[i], adam[i].p, tolerance);
}

TEST_P(EachDevice, AdamwDoesNotDependOnHowElementsAreCut) {
  constexpr int64_t kCount = 40003;
  const Values whole = train(*device_, kCount, {0});
  EXPECT_EQ(whole, train(*device_, kCount, {0, 1, 4, 21, 86, 20000, 40001}));
}

TEST_P(EachDevice, SquareSumIsInDoubleAndFromTheOrderOfTheElements) {
  Random random(4);
  for (const int64_t count : {0, 1, 17, 4095, 4096, 4097, 100003, 2100000}) {
    const Values x = random.normal(count);
    long double expected = 0;
    for (const double value : x) expected += static_cast<long double>(value) * value;
    std::vector<double> results;
    for (const int64_t offset : {0, 8}) {
      Bench bench(*device_, offset);
      const SquareSumArgs args{bench.put(x), bench.put(std::vector<int64_t>{-1}), count};
      bench.run(args);
      results.push_back(bench.get_double(args.out));
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_NEAR(results[0], static_cast<double>(expected), 1e-12 * static_cast<double>(expected));
  }
}

TEST_P(EachDevice, SquareSumsOfManyRuns) {
  constexpr int64_t kCount = 100003;
  Random random(5);
  const Values x = random.normal(kCount);
  const std::vector<ParameterRun> runs = {{.parameter = 3, .count = 1},
                                          {.parameter = 5, .count = 3 * kRunBlock + 1},
                                          {.parameter = 60000, .count = kRunBlock},
                                          {.parameter = 80000, .count = 0},
                                          {.parameter = 80001, .count = 20002}};
  Bench bench(*device_);
  SquareSumArgs args{bench.put(x), bench.put(std::vector<int64_t>(runs.size(), -1)), kCount};
  args.run_count = static_cast<int64_t>(runs.size());
  args.runs = bench.put(runs, &args.blocks);
  args.parts = bench.put(std::vector<int64_t>(static_cast<size_t>(args.blocks), -1));
  bench.run(args);
  const std::vector<int64_t> bits = bench.get_int64(args.out);
  for (size_t r = 0; r < runs.size(); ++r) {
    long double expected = 0;
    for (int64_t i = 0; i < runs[r].count; ++i) {
      const double value = x[static_cast<size_t>(runs[r].parameter + i)];
      expected += static_cast<long double>(value) * value;
    }
    EXPECT_NEAR(std::bit_cast<double>(bits[r]), static_cast<double>(expected),
                1e-12 * static_cast<double>(expected))
        << "run " << r;
  }
}

}  // namespace
}  // namespace motley::testing
