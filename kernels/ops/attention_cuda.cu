#include "kernels/ops/attention_heads.cuh"

namespace motley::cuda {
namespace {

/// Whether the kernels for tensor cores can do it.
template <Precision kPrecision>
bool on_tensor_cores(const CudaDevice& gpu, int64_t head_dim) {
  constexpr int kNeeded = kPrecision == Precision::kBf16 ? 80 : 75;
  return gpu.capability() >= kNeeded && head_dim <= kMostTensorColumns;
}

template <Precision kPrecision>
constexpr cudnn::DataType kCudnnType =
    kPrecision == Precision::kBf16 ? cudnn::DataType::kBfloat16 : cudnn::DataType::kHalf;

/// Null where cuDNN does not do both directions of the shape; one goes by the other's log-sum-exp
/// alone, so that operands out of alignment, which only tests have, may keep one of them from it.
template <Precision kPrecision, class Args, class... Pointers>
cudnn::Attention* through_cudnn(CudaDevice& gpu, const Args& args, const Pointers*... bases) {
  cudnn::Attention* cudnn = gpu.attention();
  if (cudnn == nullptr || !in_vectors<Element<kPrecision>>(Heads::of(args), bases...))
    return nullptr;
  return cudnn->serves(cudnn::shape_of(args, kCudnnType<kPrecision>)) ? cudnn : nullptr;
}

}  // namespace

template <Precision kPrecision>
void attention_forward(Device& device, const AttentionForwardArgs& args) {
  CudaDevice& gpu = cuda_device(device);
  if (args.elements() == 0) return;
  if constexpr (is_reduced(kPrecision)) {
    const ForwardOperands<Element<kPrecision>> operands(args);
    if (auto* cudnn =
            through_cudnn<kPrecision>(gpu, args, operands.qkv, operands.out, operands.lse))
      return gpu.check_cudnn(cudnn->forward(args, kCudnnType<kPrecision>), "attention");
    if (on_tensor_cores<kPrecision>(gpu, args.head_dim))
      return tensor_attention_forward<kPrecision>(gpu, args);
  }
  simt_attention_forward<kPrecision>(gpu, args);
}

template <Precision kPrecision>
void attention_backward(Device& device, const AttentionBackwardArgs& args) {
  CudaDevice& gpu = cuda_device(device);
  if (args.elements() == 0) return;
  if constexpr (is_reduced(kPrecision)) {
    const BackwardOperands<Element<kPrecision>> operands(args);
    if (auto* cudnn =
            through_cudnn<kPrecision>(gpu, args, operands.qkv, operands.out, operands.lse,
                                      operands.d_out, operands.d_qkv, operands.statistics))
      return gpu.check_cudnn(cudnn->backward(args, kCudnnType<kPrecision>), "attention gradient");
    if (on_tensor_cores<kPrecision>(gpu, args.head_dim))
      return tensor_attention_backward<kPrecision>(gpu, args);
  }
  simt_attention_backward<kPrecision>(gpu, args);
}

MOTLEY_IN_EACH_PRECISION(attention_forward, AttentionForwardArgs);
MOTLEY_IN_EACH_PRECISION(attention_backward, AttentionBackwardArgs);

}  // namespace motley::cuda
