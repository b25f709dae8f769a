#include <algorithm>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/runs.cuh"

namespace motley::cuda {
namespace {

/// Block b of all runs: the squares of its `block` elements.
__global__ void sum_parts(const float* x, double* parts, Runs runs, int64_t block) {
  const ParameterRun run = run_of_block(runs, blockIdx.x);
  const int64_t begin = (blockIdx.x - run.first_block) * block;
  const int64_t end = begin + block < run.count ? begin + block : run.count;
  const float* values = x + run.parameter;
  const int64_t fours =
      reinterpret_cast<uintptr_t>(values + begin) % sizeof(float4) == 0 ? (end - begin) / 4 : 0;
  const auto square = [](float value) {
    return static_cast<double>(value) * static_cast<double>(value);
  };
  double sum = 0;
  for (int64_t i = threadIdx.x; i < fours; i += blockDim.x) {
    const float4 four = reinterpret_cast<const float4*>(values + begin)[i];
    sum += square(four.x) + square(four.y) + square(four.z) + square(four.w);
  }
  for (int64_t i = begin + 4 * fours + threadIdx.x; i < end; i += blockDim.x)
    sum += square(values[i]);
  sum = block_sum(sum);
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
