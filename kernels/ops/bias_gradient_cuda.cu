#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/row_sum.cuh"

namespace motley::cuda {
namespace {

template <class T>
__global__ void sum_columns(const T* in, float* out, int64_t rows, int64_t n, bool accumulate) {
  const int64_t column = summed_column();
  const float sum =
      sum_rows(rows, column < n, [&](int64_t row) { return wide(in[row * n + column]); });
  if (threadIdx.y == 0 && column < n) out[column] = accumulate ? out[column] + sum : sum;
}

}  // namespace

template <Precision kPrecision>
void bias_gradient(Device& device, const BiasGradientArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  if (args.n == 0) return;
  launch(gpu, "bias gradient", {column_blocks(args.n), column_threads()}, sum_columns<T>,
         args.in.as<const T>(), args.out.as<float>(), args.rows, args.n, args.accumulate);
}

MOTLEY_IN_EACH_PRECISION(bias_gradient, BiasGradientArgs);

}  // namespace motley::cuda
