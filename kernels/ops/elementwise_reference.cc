#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "kernels/reference/reference_ops.h"

namespace motley::reference {
void add(Device&, const AddArgs& args) {
  const auto* a = args.a.as<const double>();
  const auto* b = args.b.as<const double>();
  auto* out = args.out.as<double>();
  for (int64_t i = 0; i < args.count; ++i) out[i] = a[i] + b[i];
}

void zero(Device&, const ZeroArgs& args) {
  if (args.bytes > 0) std::memset(args.out.as<void>(), 0, static_cast<size_t>(args.bytes));
}

void copy(Device&, const CopyArgs& args) {
  std::copy_n(args.in.as<const std::byte>(), args.bytes, args.out.as<std::byte>());
}

void round(Device&, const RoundArgs& args) {
  std::copy_n(args.in.as<const double>(), args.count, args.out.as<double>());
}

void scale(Device&, const ScaleArgs& args) {
  auto* x = args.x.as<double>();
  for (int64_t i = 0; i < args.count; ++i) {
    x[i] *= args.factor;
    if (!std::isfinite(x[i])) *args.overflow.as<int64_t>() = 1;
  }
}

}  // namespace motley::reference
