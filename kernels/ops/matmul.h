#pragma once
#include "core/precision.h"
#include "core/spec/fleet_spec.h"
#include "kernels/operand.h"

namespace motley {

/// What a product does with its sums before they leave it.
enum class Epilogue {
  kNone,
  kGelu,         ///< the sums go to pre_activation, gelu of them to C
  kGeluGradient  ///< C gets the sums times gelu'(pre_activation)
};

/// C[m,n] = epilogue(op(A)·op(B) + (accumulate ? C : 0) + (bias ? bias[n] broadcast over rows :
/// 0)), all row-major. op(A) is A[m,k], or the transpose of A[k,m] if transpose_a; likewise op(B)
/// is B[k,n] or the transpose of B[n,k]. From one stored row of A to the next it is a_stride
/// elements, of C c_stride; what lies between rows is nobody's. Bits depend on (m, n, k,
/// transposes, strides, epilogue) alone, never on threads or neighbours, nor on addresses that are
/// multiples of 16 bytes.
///
/// In TensorFloat-32 (Precision::kTf32) A and B are rounded to it first, in what way is the
/// device's.
///
/// With fp8, on a device that computes in it (Precision::kFp8), A and B are two tensors that are
/// rounded to 8 bits first, each with the scale that fits its largest magnitude: to E4M3, a
/// gradient to E5M2 (core/reduced_floats.h). An infinity or NaN in either makes all of C NaN.
///
/// gelu is the tanh form: x/2·(1 + tanh(sqrt(2/π)(x + 0.044715x³))) (Hendrycks & Gimpel 2016). In
/// reduced precision it may be of the sum before or after it is rounded. The epilogues do not
/// accumulate, and their C and pre_activation[m,n] are of one type and dense.
struct MatmulArgs {
  Address a, b, c;
  Address bias = {};  ///< may be null
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  bool full_output = false;     ///< C is in full precision: a gradient of weights
  int64_t a_stride = 0;         ///< 0: A is dense
  int64_t c_stride = 0;         ///< 0: C is dense
  Address pre_activation = {};  ///< null without an epilogue
  Epilogue epilogue = Epilogue::kNone;
  bool fp8 = false;         ///< if the shape allows: in_8_bits()
  bool gradient_a = false;  ///< A is a gradient
  Address workspace = {};   ///< of matmul_workspace_elements(), in full precision

  /// What the GPUs' products in 8 bits want of a shape. Others are computed as without fp8.
  bool in_8_bits() const {
    constexpr int64_t kMultiple = 16;
    return fp8 && m * n * k > 0 && (m | n | k | lda() | ldc()) % kMultiple == 0;
  }
  int64_t lda() const { return a_stride != 0 ? a_stride : (transpose_a ? m : k); }
  int64_t ldb() const { return transpose_b ? k : n; }
  int64_t ldc() const { return c_stride != 0 ? c_stride : n; }

  double flops() const {
    const auto outputs = static_cast<double>(m) * static_cast<double>(n);
    const double of_gelu = epilogue == Epilogue::kGelu ? 10 : 16;
    return 2 * outputs * static_cast<double>(k) +
           (epilogue == Epilogue::kNone ? 0 : of_gelu * outputs);
  }
  template <class V>
  void operands(V&& v) {
    v.read(reduced(a, (transpose_a ? k : m) * lda()));
    v.read(reduced(b, k * n));
    v.read(reduced(bias, n));
    if (epilogue == Epilogue::kGelu)
      v.write(reduced(pre_activation, m * n));
    else
      v.read(reduced(pre_activation, m * n));
    const Operand output = full_output ? full(c, m * ldc()) : reduced(c, m * ldc());
    if (accumulate)
      v.update(output);
    else
      v.write(output);
    v.write(raw(workspace, 0));  // as large as the caller has made it
  }
};

/// Elements that a factor's scale takes: cuBLASLt wants it on 16 bytes.
inline constexpr int64_t kEightBitScale = 4;
/// On a GPU that computes in fp8 there is room in it for A and B in 8 bits, one after the other,
/// and then their scales. `shape`: its numbers alone are read.
inline int64_t matmul_workspace_elements(const MatmulArgs& shape, DeviceKind kind,
                                         Precision precision) {
  const bool needed =
      kind == DeviceKind::kCuda && precision == Precision::kFp8 && shape.in_8_bits();
  return needed ? (shape.m + shape.n) * shape.k / 4 + 2 * kEightBitScale : 0;
}

}  // namespace motley
