#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"

namespace motley::cuda {
namespace {

/// One block for each row. d_logits may be null or logits.
__global__ void loss_of_row(const float* all_logits, const int32_t* targets, float* losses,
                            float* d_logits, int64_t vocab) {
  const int64_t row = blockIdx.x;
  const float* logits = all_logits + row * vocab;
  const int64_t target = targets[row];
  float largest = -INFINITY;
  for (int64_t i = threadIdx.x; i < vocab; i += blockDim.x) largest = fmaxf(largest, logits[i]);
  largest = block_max(largest);
  float sum = 0;
  for (int64_t i = threadIdx.x; i < vocab; i += blockDim.x) sum += expf(logits[i] - largest);
  sum = block_sum(sum);
  if (threadIdx.x == 0) losses[row] = largest + logf(sum) - logits[target];
  if (d_logits == nullptr) return;
  __syncthreads();  // the target's logit was read before it is overwritten
  for (int64_t i = threadIdx.x; i < vocab; i += blockDim.x)
    d_logits[row * vocab + i] = expf(logits[i] - largest) / sum - (i == target ? 1.0f : 0.0f);
}

}  // namespace

void cross_entropy(Device& device, const CrossEntropyArgs& args) {
  CudaDevice& gpu = cuda_device(device);
  if (args.rows == 0) return;
  loss_of_row<<<static_cast<unsigned>(args.rows), kBlockThreads, 0, gpu.stream()>>>(
      args.logits.as<const float>(), args.targets.as<const int32_t>(), args.losses.as<float>(),
      args.d_logits.as<float>(), args.vocab);
  gpu.check_launch("cross entropy");
}

}  // namespace motley::cuda
