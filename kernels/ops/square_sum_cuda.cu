#include <algorithm>

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"

namespace motley::cuda {
namespace {

/// Block b sums the elements [b·part, (b+1)·part).
__global__ void sum_parts(const float* x, double* parts, int64_t count, int64_t part) {
  const int64_t begin = blockIdx.x * part;
  const int64_t end = begin + part < count ? begin + part : count;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

/// One block joins the parts.
__global__ void join_parts(const double* parts, int64_t count, double* out) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += parts[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *out = sum;
}

}  // namespace

void square_sum(Device& device, const SquareSumArgs& args) {
  CudaDevice& gpu = cuda_device(device);
  const int64_t blocks = ceil_div(args.count, kSquareSumBlock);
  const int64_t part =
      std::max<int64_t>(1, ceil_div(blocks, CudaDevice::kPartialSums)) * kSquareSumBlock;
  const int64_t parts = ceil_div(args.count, part);
  if (parts > 0) {
    launch(gpu, "square sum", {static_cast<unsigned>(parts)}, sum_parts, args.x.as<const float>(),
           gpu.partial_sums(), args.count, part);
  }
  launch(gpu, "square sum", {1}, join_parts, gpu.partial_sums(), parts, args.out.as<double>());
}

}  // namespace motley::cuda
