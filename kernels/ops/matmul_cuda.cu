#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"

namespace motley::cuda {
namespace {

/// c[row, column] = bias[column] (+ c[row, column])
__global__ void add_bias(float* c, const float* bias, int64_t count, int64_t n, bool accumulate) {
  const int64_t i = element_index();
  if (i >= count) return;
  c[i] = accumulate ? c[i] + bias[i % n] : bias[i % n];
}

}  // namespace

// cuBLAS is column-major: it sees our row-major matrices as their transposes, and computes
// Cᵀ = op(B)ᵀ·op(A)ᵀ. float32 throughout: TF32 is not enabled.
void matmul(Device& device, const MatmulArgs& args) {
  CudaDevice& gpu = cuda_device(device);
  const int64_t count = args.m * args.n;
  if (count == 0) return;
  if (!args.bias.null()) {
    add_bias<<<blocks_for(count), kBlockThreads, 0, gpu.stream()>>>(
        args.c.as<float>(), args.bias.as<const float>(), count, args.n, args.accumulate);
    gpu.check_launch("bias");
  }
  const float alpha = 1, beta = args.accumulate || !args.bias.null() ? 1 : 0;
  gpu.check(cublasSgemm_64(gpu.cublas(), args.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                           args.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, args.n, args.m, args.k,
                           &alpha, args.b.as<const float>(), args.transpose_b ? args.k : args.n,
                           args.a.as<const float>(), args.transpose_a ? args.m : args.k, &beta,
                           args.c.as<float>(), args.n),
            "matmul");
}

}  // namespace motley::cuda
