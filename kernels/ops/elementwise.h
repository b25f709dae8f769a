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
