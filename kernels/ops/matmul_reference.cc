#include "kernels/reference/reference_ops.h"

namespace motley::reference {

void matmul(Device&, const MatmulArgs& args) {
  const auto* a = args.a.as<const double>();
  const auto* b = args.b.as<const double>();
  const auto* bias = args.bias.as<const double>();
  auto* c = args.c.as<double>();  // [m, n]
  for (int64_t i = 0; i < args.m; ++i) {
    for (int64_t j = 0; j < args.n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < args.k; ++l) {
        const double left = args.transpose_a ? a[l * args.m + i] : a[i * args.k + l];
        const double right = args.transpose_b ? b[j * args.k + l] : b[l * args.n + j];
        sum += left * right;
      }
      if (bias != nullptr) sum += bias[j];
      if (args.accumulate) sum += c[i * args.n + j];
      c[i * args.n + j] = sum;
    }
  }
}

}  // namespace motley::reference
