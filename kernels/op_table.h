#pragma once
// Every operation a device must offer. A backend that forgets one does not compile
// (-Werror=missing-field-initializers).

#include <variant>

#include "core/ids.h"
#include "core/precision.h"
#include "kernels/ops/adamw.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/bias_gradient.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/dropout.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/fixed_point.h"
#include "kernels/ops/layer_norm.h"
#include "kernels/ops/matmul.h"

namespace motley {

class Device;

/// An operation with its operands: what a static program is made of. Its kernel is found by type.
using OpCall =
    std::variant<MatmulArgs, BiasGradientArgs, EmbeddingForwardArgs, EmbeddingBackwardArgs,
                 LayerNormForwardArgs, LayerNormBackwardArgs, AddArgs, ZeroArgs, CopyArgs,
                 RoundArgs, ScaleArgs, DropoutArgs, AttentionForwardArgs, AttentionBackwardArgs,
                 CrossEntropyArgs, CrossEntropyPartArgs, CrossEntropyCombineArgs,
                 AccumulateFixedArgs, FromFixedArgs, AdamwArgs, SquareSumArgs>;

template <class Args>
using Kernel = void (*)(Device&, const Args&);

/// Kernels enqueue on the device's stream and report faults through Device::synchronize. They sum
/// in full precision and round what they store once; kernels/operand.h has the types of operands.
struct OpTable {
  Kernel<MatmulArgs> matmul;
  Kernel<BiasGradientArgs> bias_gradient;
  Kernel<EmbeddingForwardArgs> embedding_forward;
  Kernel<EmbeddingBackwardArgs> embedding_backward;
  Kernel<LayerNormForwardArgs> layer_norm_forward;
  Kernel<LayerNormBackwardArgs> layer_norm_backward;
  Kernel<AddArgs> add;
  Kernel<ZeroArgs> zero;
  Kernel<CopyArgs> copy;
  Kernel<RoundArgs> round;
  Kernel<ScaleArgs> scale;
  Kernel<DropoutArgs> dropout;
  Kernel<AttentionForwardArgs> attention_forward;
  Kernel<AttentionBackwardArgs> attention_backward;
  Kernel<CrossEntropyArgs> cross_entropy;
  Kernel<CrossEntropyPartArgs> cross_entropy_part;
  Kernel<CrossEntropyCombineArgs> cross_entropy_combine;
  Kernel<AccumulateFixedArgs> accumulate_fixed;
  Kernel<FromFixedArgs> from_fixed;
  Kernel<AdamwArgs> adamw;
  Kernel<SquareSumArgs> square_sum;
};

/// Runs one operation on the device's stream.
void execute(Device& device, const OpCall& call);

double flops_of(const OpCall& call);

/// What a CPU that computes in `precision` needs for itself to run `call`: for reduced operands in
/// full, for factors of products in TensorFloat-32.
Bytes scratch_bytes(const OpCall& call, Precision precision);

}  // namespace motley
