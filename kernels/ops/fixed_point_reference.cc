#include <cmath>

#include "kernels/reference/reference_ops.h"

namespace motley::reference {

void accumulate_fixed(Device&, const AccumulateFixedArgs& args) {
  const auto* x = args.x.as<const double>();
  auto* acc = args.acc.as<int64_t>();
  for (int64_t i = 0; i < args.count; ++i) {
    const double scaled = std::ldexp(x[i], *args.exponent.as<const int32_t>());
    if (std::isfinite(scaled) && std::abs(scaled) < kFixedLimit)
      acc[i] += std::llrint(scaled);
    else
      *args.overflow.as<int64_t>() = 1;
  }
}

void from_fixed(Device&, const FromFixedArgs& args) {
  const auto* acc = args.acc.as<const int64_t>();
  auto* out = args.out.as<double>();
  for (int64_t i = 0; i < args.count; ++i)
    out[i] = std::ldexp(static_cast<double>(acc[i]), -args.exponent);
}

}  // namespace motley::reference
