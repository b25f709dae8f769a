#pragma once
#include "kernels/operand.h"

namespace motley {

/// out[i] = a[i] + b[i]; out may be a.
struct AddArgs {
  Address a, b, out;
  int64_t count = 0;

  double flops() const { return static_cast<double>(count); }
  template <class V>
  void operands(V&& v) {
    v.read(reduced(a, count));
    v.read(reduced(b, count));
    v.write(reduced(out, count));
  }
};

/// out = gelu(x), the tanh form: x/2·(1 + tanh(sqrt(2/π)(x + 0.044715x³))) (Hendrycks & Gimpel
/// 2016).
struct GeluForwardArgs {
  Address x, out;
  int64_t count = 0;

  double flops() const { return 10.0 * static_cast<double>(count); }
  template <class V>
  void operands(V&& v) {
    v.read(reduced(x, count));
    v.write(reduced(out, count));
  }
};

/// d_x = d_out · gelu'(x); d_x may be d_out.
struct GeluBackwardArgs {
  Address x, d_out, d_x;
  int64_t count = 0;

  double flops() const { return 16.0 * static_cast<double>(count); }
  template <class V>
  void operands(V&& v) {
    v.read(reduced(x, count));
    v.read(reduced(d_out, count));
    v.write(reduced(d_x, count));
  }
};

/// Sets `bytes` bytes to zero.
struct ZeroArgs {
  Address out;
  int64_t bytes = 0;

  double flops() const { return 0; }
  template <class V>
  void operands(V&& v) {
    v.write(raw(out, bytes));
  }
};

/// Copies `bytes` bytes; `in` and `out` do not overlap.
struct CopyArgs {
  Address in, out;
  int64_t bytes = 0;

  double flops() const { return 0; }
  template <class V>
  void operands(V&& v) {
    v.read(raw(in, bytes));
    v.write(raw(out, bytes));
  }
};

/// out[i] = in[i], rounded to the precision the device computes in.
struct RoundArgs {
  Address in, out;
  int64_t count = 0;

  double flops() const { return 0; }
  template <class V>
  void operands(V&& v) {
    v.read(full(in, count));
    v.write(reduced(out, count));
  }
};

/// x[i] *= factor, a power of two; *overflow (int64) becomes 1 where a product is not finite.
struct ScaleArgs {
  Address x, overflow;
  int64_t count = 0;
  double factor = 1;

  double flops() const { return static_cast<double>(count); }
  template <class V>
  void operands(V&& v) {
    v.update(full(x, count));
    v.update(raw(overflow, sizeof(int64_t)));
  }
};

}  // namespace motley
