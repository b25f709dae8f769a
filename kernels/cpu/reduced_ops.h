#pragma once
// The kernels of a cpu device that computes in reduced precision: those of floats, between widening
// what they read and rounding what they have written. As a GPU's kernels do, they sum in float and
// round once. And those of one that rounds the factors of products only, or besides.

#include "core/precision.h"
#include "kernels/op_table.h"

namespace motley::cpu {

/// `precision` is one of the reduced ones or kTf32.
const OpTable& rounding_ops(Precision precision);

}  // namespace motley::cpu
