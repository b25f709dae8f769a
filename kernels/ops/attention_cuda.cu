#include "kernels/ops/attention_heads.cuh"

namespace motley::cuda {
namespace {

/// Whether the kernels for tensor cores can do it.
template <Precision kPrecision>
bool on_tensor_cores(const CudaDevice& gpu, int64_t head_dim) {
  constexpr int kNeeded = kPrecision == Precision::kBf16 ? 80 : 75;
  return gpu.capability() >= kNeeded && head_dim <= kMostTensorColumns;
}

}  // namespace

template <Precision kPrecision>
void attention_forward(Device& device, const AttentionForwardArgs& args) {
  CudaDevice& gpu = cuda_device(device);
  if (args.elements() == 0) return;
  if constexpr (is_reduced(kPrecision))
    if (on_tensor_cores<kPrecision>(gpu, args.head_dim))
      return tensor_attention_forward<kPrecision>(gpu, args);
  simt_attention_forward<kPrecision>(gpu, args);
}

template <Precision kPrecision>
void attention_backward(Device& device, const AttentionBackwardArgs& args) {
  CudaDevice& gpu = cuda_device(device);
  if (args.elements() == 0) return;
  if constexpr (is_reduced(kPrecision))
    if (on_tensor_cores<kPrecision>(gpu, args.head_dim))
      return tensor_attention_backward<kPrecision>(gpu, args);
  simt_attention_backward<kPrecision>(gpu, args);
}

MOTLEY_IN_EACH_PRECISION(attention_forward, AttentionForwardArgs);
MOTLEY_IN_EACH_PRECISION(attention_backward, AttentionBackwardArgs);

}  // namespace motley::cuda
