#pragma once
#include "kernels/address.h"

namespace motley {

/// out[i] = a[i] + b[i]; out may be a.
struct AddArgs {
  Address a, b, out;
  int64_t count = 0;

  double flops() const { return static_cast<double>(count); }
  template <class V>
  void operands(V&& v) {
    v.read(a);
    v.read(b);
    v.write(out);
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
    v.read(x);
    v.write(out);
  }
};

/// d_x = d_out · gelu'(x); d_x may be d_out.
struct GeluBackwardArgs {
  Address x, d_out, d_x;
  int64_t count = 0;

  double flops() const { return 16.0 * static_cast<double>(count); }
  template <class V>
  void operands(V&& v) {
    v.read(x);
    v.read(d_out);
    v.write(d_x);
  }
};

/// Sets `bytes` bytes to zero.
struct ZeroArgs {
  Address out;
  int64_t bytes = 0;

  double flops() const { return 0; }
  template <class V>
  void operands(V&& v) {
    v.write(out);
  }
};

/// out[i] = in[i]; the two do not overlap.
struct CopyArgs {
  Address in, out;
  int64_t count = 0;

  double flops() const { return 0; }
  template <class V>
  void operands(V&& v) {
    v.read(in);
    v.write(out);
  }
};

}  // namespace motley
