#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/row_sum.h"

namespace motley::cpu {

void bias_gradient(Device& device, const BiasGradientArgs& args) {
  parallel_ranges(device, args.n, kSumColumns, [&](int64_t begin, int64_t end) {
    const auto* in = args.in.as<const float>() + begin;  // [rows, n]
    auto* out = args.out.as<float>() + begin;
    RowTree<1> tree;
    const auto& sums = tree.sum(args.rows, [&](RowTree<1>::Sums& partial, int64_t row) {
      for (int64_t i = 0; i < end - begin; ++i) partial[0][i] += in[row * args.n + i];
    });
    for (int64_t i = 0; i < end - begin; ++i)
      out[i] = args.accumulate ? out[i] + sums[0][i] : sums[0][i];
  });
}

}  // namespace motley::cpu
