#include <cmath>

#include "kernels/reference/reference_ops.h"

namespace motley::reference {

void layer_norm_forward(Device&, const LayerNormForwardArgs& args) {
  const auto* gain = args.gain.as<const double>();
  const auto* bias = args.bias.as<const double>();
  for (int64_t row = 0; row < args.rows; ++row) {
    const auto* x = args.x.as<const double>() + row * args.width;
    auto* out = args.out.as<double>() + row * args.width;
    if (!args.residual.null()) {
      const auto* residual = args.residual.as<const double>() + row * args.width;
      auto* sum = args.sum.as<double>() + row * args.width;
      for (int64_t i = 0; i < args.width; ++i) sum[i] = x[i] + residual[i];
      x = sum;
    }
    double mean = 0;
    for (int64_t i = 0; i < args.width; ++i) mean += x[i];
    mean /= static_cast<double>(args.width);
    double variance = 0;
    for (int64_t i = 0; i < args.width; ++i) variance += (x[i] - mean) * (x[i] - mean);
    variance /= static_cast<double>(args.width);
    const double rstd = 1 / std::sqrt(variance + kLayerNormEpsilon);
    for (int64_t i = 0; i < args.width; ++i) out[i] = (x[i] - mean) * rstd * gain[i] + bias[i];
    args.mean.as<double>()[row] = mean;
    args.rstd.as<double>()[row] = rstd;
  }
}

// With n = (x - mean)·rstd and g = d_out·gain:  d_x = rstd·(g - mean(g) - n·mean(g·n)).
void layer_norm_backward(Device&, const LayerNormBackwardArgs& args) {
  const auto* gain = args.gain.as<const double>();
  auto* gain_gradient = args.gain_gradient.as<double>();
  auto* bias_gradient = args.bias_gradient.as<double>();
  for (int64_t i = 0; !args.accumulate_parameters && i < args.width; ++i)
    gain_gradient[i] = bias_gradient[i] = 0;
  for (int64_t row = 0; row < args.rows; ++row) {
    const auto* x = args.x.as<const double>() + row * args.width;
    const auto* d_out = args.d_out.as<const double>() + row * args.width;
    auto* d_x = args.d_x.as<double>() + row * args.width;
    const double mean = args.mean.as<const double>()[row];
    const double rstd = args.rstd.as<const double>()[row];
    double mean_g = 0, mean_gn = 0;
    for (int64_t i = 0; i < args.width; ++i) {
      const double n = (x[i] - mean) * rstd;
      mean_g += d_out[i] * gain[i];
      mean_gn += d_out[i] * gain[i] * n;
      gain_gradient[i] += d_out[i] * n;
      bias_gradient[i] += d_out[i];
    }
    mean_g /= static_cast<double>(args.width);
    mean_gn /= static_cast<double>(args.width);
    for (int64_t i = 0; i < args.width; ++i) {
      const double n = (x[i] - mean) * rstd;
      const double d = rstd * (d_out[i] * gain[i] - mean_g - n * mean_gn);
      d_x[i] = args.accumulate_input ? d_x[i] + d : d;
    }
  }
}

}  // namespace motley::reference
