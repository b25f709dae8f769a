#include "kernels/op_table.h"

#include "kernels/cpu/widening.h"
#include "kernels/device.h"

namespace motley {
namespace {

/// Finds the kernel of an operation by the type of its operands.
struct Runner {
  Device& device;
  const OpTable& ops;

  void operator()(const MatmulArgs& args) const { ops.matmul(device, args); }
  void operator()(const BiasGradientArgs& args) const { ops.bias_gradient(device, args); }
  void operator()(const EmbeddingForwardArgs& args) const { ops.embedding_forward(device, args); }
  void operator()(const EmbeddingBackwardArgs& args) const { ops.embedding_backward(device, args); }
  void operator()(const LayerNormForwardArgs& args) const { ops.layer_norm_forward(device, args); }
  void operator()(const LayerNormBackwardArgs& args) const {
    ops.layer_norm_backward(device, args);
  }
  void operator()(const AddArgs& args) const { ops.add(device, args); }
  void operator()(const ZeroArgs& args) const { ops.zero(device, args); }
  void operator()(const CopyArgs& args) const { ops.copy(device, args); }
  void operator()(const RoundArgs& args) const { ops.round(device, args); }
  void operator()(const ScaleArgs& args) const { ops.scale(device, args); }
  void operator()(const DropoutArgs& args) const { ops.dropout(device, args); }
  void operator()(const AttentionForwardArgs& args) const { ops.attention_forward(device, args); }
  void operator()(const AttentionBackwardArgs& args) const { ops.attention_backward(device, args); }
  void operator()(const CrossEntropyArgs& args) const { ops.cross_entropy(device, args); }
  void operator()(const CrossEntropyPartArgs& args) const { ops.cross_entropy_part(device, args); }
  void operator()(const CrossEntropyCombineArgs& args) const {
    ops.cross_entropy_combine(device, args);
  }
  void operator()(const AccumulateFixedArgs& args) const { ops.accumulate_fixed(device, args); }
  void operator()(const FromFixedArgs& args) const { ops.from_fixed(device, args); }
  void operator()(const AdamwArgs& args) const { ops.adamw(device, args); }
  void operator()(const SquareSumArgs& args) const { ops.square_sum(device, args); }
};

}  // namespace

void execute(Device& device, const OpCall& call) { std::visit(Runner{device, device.ops()}, call); }

Bytes scratch_bytes(const OpCall& call, Precision precision) {
  if (precision == Precision::kTf32) {
    const auto* product = std::get_if<MatmulArgs>(&call);
    return product == nullptr ? Bytes(0) : FactorCopies(*product).bytes();
  }
  if (!is_reduced(precision)) return Bytes(0);
  return std::visit(
      [](auto args) {
        Widening widening(nullptr);
        args.operands(widening);
        return Bytes(widening.bytes());
      },
      call);
}

double flops_of(const OpCall& call) {
  return std::visit([](const auto& args) { return args.flops(); }, call);
}

}  // namespace motley
