#pragma once
#include "kernels/address.h"

namespace motley {

inline constexpr double kLayerNormEpsilon = 1e-5;

/// out = (x - mean)·rstd·gain + bias over the last dimension, rstd = 1/sqrt(variance + 1e-5) (Ba et
/// al. 2016). Saves mean[rows] and rstd[rows].
struct LayerNormForwardArgs {
  Address x, gain, bias, out, mean, rstd;
  int64_t rows = 0, width = 0;

  double flops() const { return 8.0 * static_cast<double>(rows) * static_cast<double>(width); }
  template <class V>
  void operands(V&& v) {
    v.read(x);
    v.read(gain);
    v.read(bias);
    v.write(out);
    v.write(mean);
    v.write(rstd);
  }
};

/// d_x += the gradient through the normalisation (d_x already holds the residual branch's
/// gradient); gain_gradient, bias_gradient = sums over rows (+ old value if accumulate_parameters).
struct LayerNormBackwardArgs {
  Address x, gain, mean, rstd, d_out, d_x, gain_gradient, bias_gradient;
  int64_t rows = 0, width = 0;
  bool accumulate_input = true;  ///< false: d_x is written, not added to
  bool accumulate_parameters = false;

  double flops() const { return 14.0 * static_cast<double>(rows) * static_cast<double>(width); }
  template <class V>
  void operands(V&& v) {
    v.read(x);
    v.read(gain);
    v.read(mean);
    v.read(rstd);
    v.read(d_out);
    if (accumulate_input)
      v.update(d_x);
    else
      v.write(d_x);
    if (accumulate_parameters) {
      v.update(gain_gradient);
      v.update(bias_gradient);
    } else {
      v.write(gain_gradient);
      v.write(bias_gradient);
    }
  }
};

}  // namespace motley
