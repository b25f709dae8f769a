#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace motley::cuda {
namespace {

/// c[row, column] = bias[column] (+ c[row, column])
template <class T, class C>
__global__ void add_bias(C* c, const T* bias, int64_t count, int64_t n, bool accumulate) {
  const int64_t i = element_index();
  if (i >= count) return;
  put(c + i, accumulate ? wide(c[i]) + wide(bias[i % n]) : wide(bias[i % n]));
}

constexpr cudaDataType_t type_of(const float*) { return CUDA_R_32F; }
constexpr cudaDataType_t type_of(const __nv_bfloat16*) { return CUDA_R_16BF; }
constexpr cudaDataType_t type_of(const __half*) { return CUDA_R_16F; }

// cuBLAS is column-major: it sees our row-major matrices as their transposes, and computes
// Cᵀ = op(B)ᵀ·op(A)ᵀ. Sums are in float32 throughout: neither TF32 nor sums in reduced precision
// are enabled.
template <class T, class C>
void multiply(CudaDevice& gpu, const MatmulArgs& args) {
  const int64_t count = args.m * args.n;
  if (count == 0) return;
  auto* c = args.c.as<C>();
  if (!args.bias.null()) {
    launch(gpu, "bias", {blocks_for(count)}, add_bias<T, C>, c, args.bias.as<const T>(), count,
           args.n, args.accumulate);
  }
  const auto* a = args.a.as<const T>();
  const auto* b = args.b.as<const T>();
  const float alpha = 1, beta = args.accumulate || !args.bias.null() ? 1 : 0;
  gpu.check(cublasGemmEx_64(gpu.cublas(), args.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                            args.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, args.n, args.m, args.k,
                            &alpha, b, type_of(b), args.transpose_b ? args.k : args.n, a,
                            type_of(a), args.transpose_a ? args.m : args.k, &beta, c, type_of(c),
                            args.n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            "matmul");
}

}  // namespace

template <Precision kPrecision>
void matmul(Device& device, const MatmulArgs& args) {
  using T = Element<kPrecision>;
  if (args.full_output)
    multiply<T, float>(cuda_device(device), args);
  else
    multiply<T, T>(cuda_device(device), args);
}

MOTLEY_IN_EACH_PRECISION(matmul, MatmulArgs);

}  // namespace motley::cuda
