#pragma once
#include "kernels/operand.h"

namespace motley {

inline constexpr double kLayerNormEpsilon = 1e-5;

/// out = (x - mean)·rstd·gain + bias over the last dimension, rstd = 1/sqrt(variance + 1e-5) (Ba et
/// al. 2016). Saves mean[rows] and rstd[rows]. With a residual, what is normalised is x + residual,
/// rounded to the precision the device computes in and stored in `sum`, which may be x: bit for bit
/// what AddArgs and then this without a residual compute.
struct LayerNormForwardArgs {
  Address x, gain, bias, out, mean, rstd;
  int64_t rows = 0, width = 0;
  Address residual = {}, sum = {};  ///< [rows, width]; both or neither

  double flops() const {
    const double elements = static_cast<double>(rows) * static_cast<double>(width);
    return (residual.null() ? 8 : 9) * elements;
  }
  template <class V>
  void operands(V&& v) {
    v.read(reduced(x, rows * width));
    v.read(reduced(residual, rows * width));
    v.write(reduced(sum, rows * width));
    v.read(full(gain, width));
    v.read(full(bias, width));
    v.write(reduced(out, rows * width));
    v.write(full(mean, rows));
    v.write(full(rstd, rows));
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
    v.read(reduced(x, rows * width));
    v.read(full(gain, width));
    v.read(full(mean, rows));
    v.read(full(rstd, rows));
    v.read(reduced(d_out, rows * width));
    if (accumulate_input)
      v.update(reduced(d_x, rows * width));
    else
      v.write(reduced(d_x, rows * width));
    if (accumulate_parameters) {
      v.update(full(gain_gradient, width));
      v.update(full(bias_gradient, width));
    } else {
      v.write(full(gain_gradient, width));
      v.write(full(bias_gradient, width));
    }
  }
};

}  // namespace motley
