#include <atomic>
#include <bit>
#include <cmath>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"

namespace motley::cpu {
namespace {

/// 2^exponent, exact for every exponent a double can have.
double power_of_two(int exponent) { return std::ldexp(1.0, exponent); }

/// The nearest integer, ties to even, of |x| < 2^51: adding 1.5·2^52 leaves it in the low bits.
int64_t nearest(double x) {
  constexpr double kRounding = 6755399441055744.0;
  return std::bit_cast<int64_t>(x + kRounding) - std::bit_cast<int64_t>(kRounding);
}

/// Whether every contribution was in range.
bool accumulate(const float* x, int64_t* acc, int64_t count, double scale) {
  int64_t refused = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double scaled = static_cast<double>(x[i]) * scale;
    const bool fits = std::abs(scaled) < kFixedLimit;  // false for NaN
    acc[i] += nearest(fits ? scaled : 0.0);
    refused += fits ? 0 : 1;
  }
  return refused == 0;
}

}  // namespace

void accumulate_fixed(Device& device, const AccumulateFixedArgs& args) {
  const double scale = power_of_two(*args.exponent.as<const int32_t>());
  auto* overflow = args.overflow.as<int64_t>();
  parallel_ranges(device, args.count, kTaskElements, [&](int64_t begin, int64_t end) {
    if (!accumulate(args.x.as<const float>() + begin, args.acc.as<int64_t>() + begin, end - begin,
                    scale))
      std::atomic_ref(*overflow).store(1, std::memory_order_relaxed);
  });
}

void from_fixed(Device& device, const FromFixedArgs& args) {
  const double scale = power_of_two(-args.exponent);
  const auto* acc = args.acc.as<const int64_t>();
  auto* out = args.out.as<float>();
  parallel_ranges(device, args.count, kTaskElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)  // the conversion rounds, the scaling is exact
      out[i] = static_cast<float>(static_cast<float>(acc[i]) * scale);
  });
}

}  // namespace motley::cpu
