#include <cmath>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/row_sum.h"

namespace motley::cpu {
namespace {

void forward_row(const LayerNormForwardArgs& args, int64_t row) {
  const auto* x = args.x.as<const float>() + row * args.width;
  if (!args.residual.null()) {
    const auto* residual = args.residual.as<const float>() + row * args.width;
    auto* sum = args.sum.as<float>() + row * args.width;
    for (int64_t i = 0; i < args.width; ++i) sum[i] = x[i] + residual[i];
    x = sum;
  }
  const auto* gain = args.gain.as<const float>();
  const auto* bias = args.bias.as<const float>();
  auto* out = args.out.as<float>() + row * args.width;
  const auto width = static_cast<float>(args.width);
  const float mean =
      sum_lanes(args.width, [&](int64_t i, int64_t lanes) { return load(x + i, lanes); }) / width;
  const float variance = sum_lanes(args.width,
                                   [&](int64_t i, int64_t lanes) {
                                     const Float8 centred = load(x + i, lanes) - mean;
                                     return centred * centred;
                                   }) /
                         width;
  const float rstd = 1 / std::sqrt(variance + static_cast<float>(kLayerNormEpsilon));
  for (int64_t i = 0; i < args.width; ++i) out[i] = (x[i] - mean) * rstd * gain[i] + bias[i];
  args.mean.as<float>()[row] = mean;
  args.rstd.as<float>()[row] = rstd;
}

// With n = (x - mean)·rstd and g = d_out·gain:  d_x = rstd·(g - mean(g) - n·mean(g·n)).
void backward_row(const LayerNormBackwardArgs& args, int64_t row) {
  const auto* x = args.x.as<const float>() + row * args.width;
  const auto* gain = args.gain.as<const float>();
  const auto* d_out = args.d_out.as<const float>() + row * args.width;
  auto* d_x = args.d_x.as<float>() + row * args.width;
  const float mean = args.mean.as<const float>()[row];
  const float rstd = args.rstd.as<const float>()[row];
  const auto width = static_cast<float>(args.width);
  const float mean_g = sum_lanes(args.width,
                                 [&](int64_t i, int64_t lanes) {
                                   return load(d_out + i, lanes) * load(gain + i, lanes);
                                 }) /
                       width;
  const float mean_gn = sum_lanes(args.width,
                                  [&](int64_t i, int64_t lanes) {
                                    const Float8 n = (load(x + i, lanes) - mean) * rstd;
                                    return load(d_out + i, lanes) * load(gain + i, lanes) * n;
                                  }) /
                        width;
  for (int64_t i = 0; i < args.width; ++i) {
    const float n = (x[i] - mean) * rstd;
    const float d = rstd * (d_out[i] * gain[i] - mean_g - n * mean_gn);
    d_x[i] = args.accumulate_input ? d_x[i] + d : d;
  }
}

void backward_parameters(const LayerNormBackwardArgs& args, int64_t begin, int64_t end) {
  const auto* mean = args.mean.as<const float>();
  const auto* rstd = args.rstd.as<const float>();
  RowTree<2> tree;
  const auto& sums = tree.sum(args.rows, [&](RowTree<2>::Sums& partial, int64_t row) {
    const auto* x = args.x.as<const float>() + row * args.width + begin;
    const auto* d_out = args.d_out.as<const float>() + row * args.width + begin;
    for (int64_t i = 0; i < end - begin; ++i) {
      partial[0][i] += d_out[i] * ((x[i] - mean[row]) * rstd[row]);
      partial[1][i] += d_out[i];
    }
  });
  auto* gain_gradient = args.gain_gradient.as<float>() + begin;
  auto* bias_gradient = args.bias_gradient.as<float>() + begin;
  for (int64_t i = 0; i < end - begin; ++i) {
    gain_gradient[i] = (args.accumulate_parameters ? gain_gradient[i] : 0) + sums[0][i];
    bias_gradient[i] = (args.accumulate_parameters ? bias_gradient[i] : 0) + sums[1][i];
  }
}

}  // namespace

void layer_norm_forward(Device& device, const LayerNormForwardArgs& args) {
  parallel_rows(device, args.rows, args.width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) forward_row(args, row);
  });
}

void layer_norm_backward(Device& device, const LayerNormBackwardArgs& args) {
  parallel_ranges(device, args.width, kSumColumns,
                  [&](int64_t begin, int64_t end) { backward_parameters(args, begin, end); });
  parallel_rows(device, args.rows, args.width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) backward_row(args, row);
  });
}

}  // namespace motley::cpu
