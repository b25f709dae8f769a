// Products whose factors are taken in 8 bits: what the float64 reference computes from factors that
// are rounded here, by looking for the nearest number.

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/reduced_floats.h"
#include "tests/contract/device_ops/op_cases.h"
#include "tests/support/require.h"
#include "tests/support/test_device.h"

namespace motley::testing {
namespace {

Result<std::unique_ptr<Device>> device_in(Precision precision, int threads = 2) {
  DeviceSpec spec;
  spec.kind = test_device();
  spec.threads = threads;
  return open_device(spec, precision);
}

/// Of an 8-bit format the numbers that are not negative, in order.
struct Format {
  int mantissa, bias;
  int largest;  ///< code of the largest number

  std::vector<double> numbers() const {
    std::vector<double> all;
    for (int code = 0; code <= largest; ++code) {
      const int exponent = code >> mantissa, fraction = code % (1 << mantissa);
      all.push_back(std::ldexp((exponent > 0 ? 1 << mantissa : 0) + fraction,
                               std::max(exponent, 1) - bias - mantissa));
    }
    return all;
  }
};
constexpr Format kE4m3{3, 7, 0x7e}, kE5m2{2, 15, 0x7b};

/// `values` as a product in 8 bits takes them, with the scale of the largest of them.
Values in_8_bits(const Values& values, const Format& format) {
  const std::vector<double> numbers = format.numbers();
  double largest = 0, scale = 0x1p-126;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  while (numbers.back() * scale < largest) scale *= 2;
  Values rounded;
  for (const double value : values) {
    const double size = std::abs(value) / scale;
    const auto above = std::lower_bound(numbers.begin(), numbers.end(), size);
    size_t code = static_cast<size_t>(above - numbers.begin());
    if (code > 0) {
      const double up = numbers[code] - size, down = size - numbers[code - 1];
      if (down < up || (down == up && code % 2 == 1)) --code;
    }
    rounded.push_back(std::copysign(numbers[code] * scale, value));
  }
  return rounded;
}

Values in_bf16(Values values) {
  for (double& value : values) value = Bf16::widen(Bf16::round(static_cast<float>(value)));
  return values;
}

struct Form {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, gradient_a = false;
  bool full = false;  ///< added to sums in full precision
  bool bias = false;
  Epilogue epilogue = Epilogue::kNone;
  int64_t gap = 0;  ///< after rows of A and C

  std::string text() const {
    return label("matmul", {m, n, k, gap}) + (transpose_a ? "_TA" : "") +
           (transpose_b ? "_TB" : "") + (gradient_a ? "_gradient" : "") + (full ? "_full" : "") +
           (bias ? "_bias" : "") + (epilogue == Epilogue::kGelu ? "_gelu" : "") +
           (epilogue == Epilogue::kGeluGradient ? "_gelu_gradient" : "");
  }
};

/// On a device in fp8 the product itself, on another one that of the rounded factors.
std::vector<Address> product(Bench& bench, const Form& form, bool fp8 = true) {
  Random random(31);
  const bool here = bench.device().precision() == Precision::kFp8;
  const auto factor = [&](Values values, const Format& format) {
    return here || !fp8 ? values : in_8_bits(values, format);
  };
  // Of a wide range, so that some numbers are below the smallest normal one.
  Values a = random.normal(form.m * form.k, 1e-4);
  for (size_t i = 0; i < a.size(); i += 7) a[i] *= 300;
  a[3] = 0.9;
  a = factor(in_bf16(a), form.gradient_a ? kE5m2 : kE4m3);
  const Values b = factor(in_bf16(random.normal(form.n * form.k, 30)), kE4m3);
  const int64_t a_columns = form.transpose_a ? form.m : form.k;
  const Values c = random.normal(form.m * form.n);
  MatmulArgs args{.a = bench.put(spread(a, a_columns, form.gap)),
                  .b = bench.put(b),
                  .c = form.full ? bench.put(spread(c, form.n, form.gap))
                                 : bench.poisoned(form.m * (form.n + form.gap)),
                  .bias = form.bias ? bench.put(random.normal(form.n)) : Address(),
                  .m = form.m,
                  .n = form.n,
                  .k = form.k,
                  .transpose_a = form.transpose_a,
                  .transpose_b = form.transpose_b,
                  .accumulate = form.full,
                  .full_output = form.full,
                  .a_stride = form.gap == 0 ? 0 : a_columns + form.gap,
                  .c_stride = form.gap == 0 ? 0 : form.n + form.gap,
                  .epilogue = form.epilogue,
                  .fp8 = fp8,
                  .gradient_a = form.gradient_a};
  if (form.epilogue == Epilogue::kGelu) args.pre_activation = bench.poisoned(form.m * form.n);
  if (form.epilogue == Epilogue::kGeluGradient)
    args.pre_activation = bench.put(random.normal(form.m * form.n));
  args.workspace = bench.poisoned_workspace(args);
  bench.run(args);
  std::vector<Address> outputs = {
      form.gap == 0 ? args.c : bench.put(gathered(bench.get(args.c), form.n, form.gap))};
  if (form.epilogue == Epilogue::kGelu) outputs.push_back(args.pre_activation);
  return outputs;
}

/// Every way in which factors lie, in one square of what is transposed and in several.
std::vector<Form> forms() {
  std::vector<Form> all;
  for (const Form& shape : {Form{16, 16, 16}, {48, 80, 32}, {144, 64, 208}, {16, 32, 1040}})
    for (int number = 0; number < 16; ++number) {
      Form form = shape;
      form.transpose_a = (number & 1) != 0;
      form.transpose_b = (number & 2) != 0;
      form.gradient_a = (number & 4) != 0;
      form.full = (number & 8) != 0;
      form.bias = number % 3 == 0 && !form.full;
      all.push_back(form);
      if (shape.m != 48) continue;
      form.gap = 16;
      all.push_back(form);
    }
  for (const bool bias : {false, true}) {
    all.push_back({.m = 48,
                   .n = 64,
                   .k = 32,
                   .transpose_b = true,
                   .bias = bias,
                   .epilogue = Epilogue::kGelu});
    all.push_back({.m = 48,
                   .n = 64,
                   .k = 32,
                   .gradient_a = true,
                   .bias = bias,
                   .epilogue = Epilogue::kGeluGradient});
  }
  return all;
}

/// Skipped on GPUs before sm_89, which say so.
class ProductsInFp8 : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = device_in(Precision::kFp8);
    if (device) return void(device_ = std::move(*device));
    EXPECT_THAT(device.error().message, ::testing::HasSubstr("has no fp8, which comes with sm_89"));
    MOTLEY_SKIP_WITHOUT("fp8", device.error().message);
  }

  std::unique_ptr<Device> device_;
};

TEST_F(ProductsInFp8, AreThoseOfFactorsInEightBits) {
  for (const Form& form : forms()) {
    SCOPED_TRACE(form.text());
    // Hopper's tensor cores keep about 14 bits of the sums they have under way (DeepSeek-V3 report,
    // section 3.3.2), and lose up to the last at each step; an output in bf16 is rounded as well.
    const double of_sums = test_device() == DeviceKind::kCuda ? 0x1p-9 : 5e-4;
    const double tolerance = of_sums + (form.full ? 0 : 0x1p-7);
    expect_as_reference(*device_, tolerance, 1, [&](Bench& bench) { return product(bench, form); });
  }
}

TEST_F(ProductsInFp8, RoundAlikeWhateverTheNumberOfThreads) {
  const auto one = device_in(Precision::kFp8, 1), three = device_in(Precision::kFp8, 3);
  const Form form{144, 80, 208, true, false, true, true};
  const Trial trial = [&](Bench& bench) { return product(bench, form); };
  EXPECT_EQ(bits_of(**one, trial), bits_of(**three, trial));
  EXPECT_EQ(bits_of(**one, trial), bits_of(**one, trial));
}

TEST_F(ProductsInFp8, AreInBf16WhereNotAskedOrNotOfSixteens) {
  const auto bf16 = device_in(Precision::kBf16);
  const auto bits = [](Device& device, const Form& form, bool asked) {
    return bits_of(device, [&](Bench& bench) { return product(bench, form, asked); });
  };
  EXPECT_EQ(bits(*device_, {48, 32, 64}, false), bits(**bf16, {48, 32, 64}, false));
  EXPECT_NE(bits(*device_, {48, 32, 64}, true), bits(*device_, {48, 32, 64}, false));
  for (const Form& odd : {Form{47, 32, 64}, {48, 40, 64}, {48, 32, 72}})
    EXPECT_EQ(bits(*device_, odd, true), bits(*device_, odd, false)) << odd.text();
}

/// C of a product of these, [16, 16], in full precision.
Values product_of(Device& device, const Values& a, const Values& b, bool gradient) {
  constexpr int64_t kSize = 16;
  Bench bench(device);
  MatmulArgs args{.a = bench.put(a),
                  .b = bench.put(b),
                  .c = bench.poisoned(kSize * kSize),
                  .m = kSize,
                  .n = kSize,
                  .k = kSize,
                  .full_output = true,
                  .fp8 = true,
                  .gradient_a = gradient};
  args.workspace = bench.poisoned_workspace(args);
  bench.run(args);
  return bench.get(args.c);
}

TEST_F(ProductsInFp8, OfZerosAreZero) {
  const Values zeros(256, 0.0), ones(256, 1.0);
  for (const bool gradient : {false, true}) {
    EXPECT_EQ(product_of(*device_, zeros, ones, gradient), zeros);
    EXPECT_EQ(product_of(*device_, ones, zeros, gradient), zeros);
    EXPECT_EQ(product_of(*device_, zeros, zeros, gradient), zeros);
  }
}

TEST_F(ProductsInFp8, ScaleWhatIsLargeAndSmallWithoutLoss) {
  for (const double size : {0x1p-60, 0x1p-20, 1.0, 0x1p20, 0x1p60})
    EXPECT_EQ(product_of(*device_, Values(256, 1.5 * size), Values(256, 3), true),
              Values(256, 16 * 4.5 * size));
}

TEST_F(ProductsInFp8, OfWhatIsNoNumberAreNone) {
  for (const double none : {std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity(), std::nan("")})
    for (const bool gradient : {false, true})
      for (const bool in_a : {false, true}) {
        Values with(256, 1.0);
        with[77] = none;
        const Values ones(256, 1.0);
        for (const double c :
             product_of(*device_, in_a ? with : ones, in_a ? ones : with, gradient))
          ASSERT_TRUE(std::isnan(c)) << none << " in " << (in_a ? "A" : "B");
      }
}

/// A GPU may compute these in bf16.
TEST_F(ProductsInFp8, DoWithOperandsThatLieAnywhere) {
  const Form form{48, 32, 64};
  const auto at = [&](int64_t offset) {
    Bench bench(*device_, offset);
    return bench.get(product(bench, form)[0]);
  };
  const Values aligned = at(0), shifted = at(8);
  double largest = 0;
  for (const double value : aligned) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < aligned.size(); ++i) EXPECT_NEAR(shifted[i], aligned[i], 0.1 * largest);
}

}  // namespace
}  // namespace motley::testing
