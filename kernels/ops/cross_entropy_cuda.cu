#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace motley::cuda {
namespace {

/// `scale` may be null: 1.
__device__ inline float factor_of(const double* scale) {
  return scale == nullptr ? 1.0f : static_cast<float>(*scale);
}

/// Largest of a row and the sum of exponentials relative to it. Called by all threads of the block.
template <class T>
__device__ float2 largest_and_sum(const T* logits, int64_t vocab) {
  float largest = -INFINITY;
  for (int64_t i = threadIdx.x; i < vocab; i += blockDim.x)
    largest = fmaxf(largest, wide(logits[i]));
  largest = block_max(largest);
  float sum = 0;
  for (int64_t i = threadIdx.x; i < vocab; i += blockDim.x) sum += expf(wide(logits[i]) - largest);
  return {largest, block_sum(sum)};
}

/// One block for each row. d_logits may be null or logits.
template <class T>
__global__ void loss_of_row(const T* all_logits, const int32_t* targets, float* losses, T* d_logits,
                            int64_t vocab, int64_t stride, const double* scale) {
  const int64_t row = blockIdx.x;
  const T* logits = all_logits + row * stride;
  const int64_t target = targets[row];
  const auto [largest, sum] = largest_and_sum(logits, vocab);
  if (threadIdx.x == 0) losses[row] = largest + logf(sum) - wide(logits[target]);
  if (d_logits == nullptr) return;
  __syncthreads();  // the target's logit was read before it is overwritten
  const float factor = factor_of(scale);
  for (int64_t i = threadIdx.x; i < vocab; i += blockDim.x)
    put(d_logits + row * stride + i,
        factor * (expf(wide(logits[i]) - largest) / sum - (i == target ? 1.0f : 0.0f)));
}

/// One block for each row.
template <class T>
__global__ void stats_of_row(const T* all_logits, const int32_t* targets, float* stats,
                             int64_t vocab, int64_t stride, int64_t first_token) {
  const int64_t row = blockIdx.x;
  const T* logits = all_logits + row * stride;
  const int64_t target = targets[row] - first_token;
  const float2 found = largest_and_sum(logits, vocab);
  if (threadIdx.x != 0) return;
  stats[row * 3] = found.x;
  stats[row * 3 + 1] = found.y;
  stats[row * 3 + 2] = target >= 0 && target < vocab ? wide(logits[target]) : 0.0f;
}

struct PartShape {
  int64_t parts, rows, vocab, stride, first_token;
  const double* scale;
};

/// One block for each row, each of whose threads joins the few parts. d_logits may be null or
/// logits.
template <class T>
__global__ void loss_of_parts(PartShape shape, const float* stats, const T* logits,
                              const int32_t* targets, float* losses, T* d_logits) {
  const int64_t row = blockIdx.x;
  float largest = -INFINITY, sum = 0, target_logit = 0;
  for (int64_t part = 0; part < shape.parts; ++part)
    largest = fmaxf(largest, stats[(part * shape.rows + row) * 3]);
  for (int64_t part = 0; part < shape.parts; ++part) {
    const float* of_part = stats + (part * shape.rows + row) * 3;
    sum += of_part[1] * expf(of_part[0] - largest);
    target_logit += of_part[2];
  }
  if (threadIdx.x == 0) losses[row] = largest + logf(sum) - target_logit;
  if (d_logits == nullptr) return;
  const int64_t target = targets[row] - shape.first_token;
  const float factor = factor_of(shape.scale);
  for (int64_t i = threadIdx.x; i < shape.vocab; i += blockDim.x)
    put(d_logits + row * shape.stride + i,
        factor * (expf(wide(logits[row * shape.stride + i]) - largest) / sum -
                  (i == target ? 1.0f : 0.0f)));
}

}  // namespace

template <Precision kPrecision>
void cross_entropy(Device& device, const CrossEntropyArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  if (args.rows == 0) return;
  launch(gpu, "cross entropy", {static_cast<unsigned>(args.rows)}, loss_of_row<T>,
         args.logits.as<const T>(), args.targets.as<const int32_t>(), args.losses.as<float>(),
         args.d_logits.as<T>(), args.vocab, args.row_stride(), args.scale.as<const double>());
}

template <Precision kPrecision>
void cross_entropy_part(Device& device, const CrossEntropyPartArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  if (args.rows == 0) return;
  launch(gpu, "cross entropy of a part", {static_cast<unsigned>(args.rows)}, stats_of_row<T>,
         args.logits.as<const T>(), args.targets.as<const int32_t>(), args.stats.as<float>(),
         args.vocab, args.row_stride(), args.first_token);
}

template <Precision kPrecision>
void cross_entropy_combine(Device& device, const CrossEntropyCombineArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  if (args.rows == 0) return;
  launch(gpu, "cross entropy over parts", {static_cast<unsigned>(args.rows)}, loss_of_parts<T>,
         PartShape{args.parts, args.rows, args.vocab, args.row_stride(), args.first_token,
                   args.scale.as<const double>()},
         args.stats.as<const float>(), args.logits.as<const T>(), args.targets.as<const int32_t>(),
         args.losses.as<float>(), args.d_logits.as<T>());
}

MOTLEY_IN_EACH_PRECISION(cross_entropy, CrossEntropyArgs);
MOTLEY_IN_EACH_PRECISION(cross_entropy_part, CrossEntropyPartArgs);
MOTLEY_IN_EACH_PRECISION(cross_entropy_combine, CrossEntropyCombineArgs);

}  // namespace motley::cuda
