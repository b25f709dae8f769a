#include <algorithm>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vector_access.cuh"

namespace motley::cuda {
namespace {

template <int N>
__device__ void add_squares(double& sum, const Pack<float, N>& x) {
  for (int i = 0; i < N; ++i) sum += static_cast<double>(x.at[i]) * static_cast<double>(x.at[i]);
}

/// Block b sums the elements [b·part, (b+1)·part).
template <Access kAccess>
__global__ void __launch_bounds__(kBlockThreads)
    sum_parts(const float* x, double* parts, int64_t count, int64_t part) {
  constexpr int kElements = kPack<float>, kAtOnce = 4;
  const int64_t begin = blockIdx.x * part;
  const int64_t size = begin + part < count ? part : count - begin;
  const int64_t packs = size / kElements;
  x += begin;
  double sum = 0;
  int64_t pack = threadIdx.x;
  for (; pack + (kAtOnce - 1) * kBlockThreads < packs; pack += kAtOnce * kBlockThreads) {
    Pack<float, kElements> read[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i)
      read[i] = load_pack<kAccess, kElements>(x + (pack + i * kBlockThreads) * kElements);
    for (int i = 0; i < kAtOnce; ++i) add_squares(sum, read[i]);
  }
  for (; pack < packs; pack += kBlockThreads)
    add_squares(sum, load_pack<kAccess, kElements>(x + pack * kElements));
  for (int64_t i = packs * kElements + threadIdx.x; i < size; i += kBlockThreads)
    add_squares(sum, load_pack<Access::kScalar, 1>(x + i));
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
  const auto* x = args.x.as<const float>();
  if (parts > 0)
    with_access(on_16_bytes(x), [&]<Access kAccess>() {
      launch(gpu, "square sum", {static_cast<unsigned>(parts)}, sum_parts<kAccess>, x,
             gpu.partial_sums(), args.count, part);
    });
  launch(gpu, "square sum", {1}, join_parts, gpu.partial_sums(), parts, args.out.as<double>());
}

}  // namespace motley::cuda
