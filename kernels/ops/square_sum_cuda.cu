#include <algorithm>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/runs.cuh"
#include "kernels/cuda/vector_access.cuh"

namespace motley::cuda {
namespace {

template <int N>
__device__ void add_squares(double& sum, const Pack<float, N>& x) {
  for (int i = 0; i < N; ++i) sum += static_cast<double>(x.at[i]) * static_cast<double>(x.at[i]);
}

/// What this thread of the block adds up of `count` values.
template <Access kAccess>
__device__ double squares_of(const float* values, int64_t count) {
  constexpr int kElements = kPack<float>, kAtOnce = 4;
  const int64_t packs = count / kElements;
  double sum = 0;
  int64_t pack = threadIdx.x;
  for (; pack + (kAtOnce - 1) * kBlockThreads < packs; pack += kAtOnce * kBlockThreads) {
    Pack<float, kElements> read[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i)
      read[i] = load_pack<kAccess, kElements>(values + (pack + i * kBlockThreads) * kElements);
    for (int i = 0; i < kAtOnce; ++i) add_squares(sum, read[i]);
  }
  for (; pack < packs; pack += kBlockThreads)
    add_squares(sum, load_pack<kAccess, kElements>(values + pack * kElements));
  for (int64_t i = packs * kElements + threadIdx.x; i < count; i += kBlockThreads)
    add_squares(sum, load_pack<Access::kScalar, 1>(values + i));
  return sum;
}

/// Block b of all runs: the squares of its `block` elements.
__global__ void __launch_bounds__(kBlockThreads)
    sum_parts(const float* x, double* parts, Runs runs, int64_t block) {
  const ParameterRun run = run_of_block(runs, blockIdx.x);
  const int64_t begin = (blockIdx.x - run.first_block) * block;
  const int64_t count = begin + block < run.count ? block : run.count - begin;
  const float* values = x + run.parameter + begin;
  const bool vectors = reinterpret_cast<uintptr_t>(values) % 16 == 0;
  const double sum = block_sum(vectors ? squares_of<Access::kVector>(values, count)
                                       : squares_of<Access::kScalar>(values, count));
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

/// One block of threads for each run joins its parts.
__global__ void join_parts(const double* parts, Runs runs, int64_t block, double* out) {
  const ParameterRun run = runs.table == nullptr ? runs.single : runs.table[blockIdx.x];
  const int64_t count = (run.count + block - 1) / block;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += parts[run.first_block + i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

}  // namespace

void square_sum(Device& device, const SquareSumArgs& args) {
  CudaDevice& gpu = cuda_device(device);
  const bool single = args.runs.null();
  const Runs runs{args.runs.as<const ParameterRun>(), args.run_count, {.count = args.count}};
  // A single run has as many parts as there is room for.
  const int64_t fewest = ceil_div(args.count, kSquareSumBlock);
  const int64_t block =
      single ? std::max<int64_t>(1, ceil_div(fewest, CudaDevice::kPartialSums)) * kSquareSumBlock
             : kRunBlock;
  const int64_t blocks = single ? ceil_div(args.count, block) : args.blocks;
  double* const parts = single ? gpu.partial_sums() : args.parts.as<double>();
  const int64_t outs = single ? 1 : args.run_count;
  if (blocks > 0)
    launch(gpu, "square sum", {static_cast<unsigned>(blocks)}, sum_parts, args.x.as<const float>(),
           parts, runs, block);
  if (outs > 0)
    launch(gpu, "square sum", {static_cast<unsigned>(outs)}, join_parts, parts, runs, block,
           args.out.as<double>());
}

}  // namespace motley::cuda
