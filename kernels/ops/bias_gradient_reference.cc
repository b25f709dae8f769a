#include "kernels/reference/reference_ops.h"

namespace motley::reference {

void bias_gradient(Device&, const BiasGradientArgs& args) {
  const auto* in = args.in.as<const double>();  // [rows, n]
  auto* out = args.out.as<double>();            // [n]
  for (int64_t column = 0; column < args.n; ++column) {
    double sum = args.accumulate ? out[column] : 0;
    for (int64_t row = 0; row < args.rows; ++row) sum += in[row * args.n + column];
    out[column] = sum;
  }
}

}  // namespace motley::reference
