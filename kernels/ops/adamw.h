#pragma once
#include "kernels/operand.h"

namespace motley {

/// A run of elements of the parameters. An operation that takes many reads them from a table in the
/// device's memory.
struct ParameterRun {
  int64_t parameter = 0;  ///< its first element among parameters, gradients and rounded copies
  int64_t state = 0;      ///< and among the moments
  int64_t count = 0;
  int64_t first_block = 0;  ///< blocks of kRunBlock elements, the last of a run shorter, before it
  double weight_decay = 0;
};

/// Elements of a run that are taken together.
inline constexpr int64_t kRunBlock = 16384;
inline int64_t blocks_of_run(int64_t count) { return (count + kRunBlock - 1) / kRunBlock; }

/// One AdamW step with decoupled decay (Loshchilov & Hutter 2019) on `count` elements:
///   g = gradient·gradient_scale;  m = b1·m + (1-b1)·g;  v = b2·v + (1-b2)·g²
///   p -= lr·( (m/(1-b1^t)) / (sqrt(v/(1-b2^t)) + eps) + weight_decay·p );  rounded = p
/// Element-wise, so any slicing gives the same bits.
struct AdamwArgs {
  Address parameter, gradient, m, v;
  int64_t count = 0;
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  double gradient_scale = 1;                ///< 1/tokens times the clip factor
  double correction1 = 1, correction2 = 1;  ///< 1 - beta^t
  Address rounded =
      {};  ///< in the precision the device computes in, beside the parameters; or null
  // Many runs at once, whose decay then counts, and whose elements are `count` together:
  Address runs = {};  ///< ParameterRun [run_count]; null: one run, of all
  int64_t run_count = 0;
  int64_t blocks = 0;  ///< of all runs
  int64_t extent = 0;  ///< all runs' parameters are in [0, extent), the moments too

  double flops() const { return 14.0 * static_cast<double>(count); }
  template <class V>
  void operands(V&& visitor) {
    const int64_t elements = runs.null() ? count : extent;
    visitor.update(full(parameter, elements));
    visitor.read(full(gradient, elements));
    visitor.update(full(m, elements));
    visitor.update(full(v, elements));
    visitor.update(reduced(rounded, elements));
    visitor.read(raw(runs, run_count * static_cast<int64_t>(sizeof(ParameterRun))));
  }
};

inline constexpr int64_t kSquareSumBlock = 4096;

/// *out (double) = Σ x[i]², summed in double in blocks of kSquareSumBlock, in an order that depends
/// on `count` alone.
struct SquareSumArgs {
  Address x, out;
  int64_t count = 0;
  // Many runs at once, with out [run_count]; on a GPU summed in another order than one alone:
  Address runs = {};  ///< ParameterRun [run_count]; null: one run, of all
  int64_t run_count = 0;
  int64_t blocks = 0;  ///< of all runs
  Address parts = {};  ///< workspace: double [blocks]; with runs

  double flops() const { return 2.0 * static_cast<double>(count); }
  template <class V>
  void operands(V&& v) {
    const int64_t outs = runs.null() ? 1 : run_count;
    v.read(full(x, count));
    v.write(raw(out, outs * static_cast<int64_t>(sizeof(double))));
    v.read(raw(runs, run_count * static_cast<int64_t>(sizeof(ParameterRun))));
    v.write(raw(parts, blocks * static_cast<int64_t>(sizeof(double))));
  }
};

}  // namespace motley
