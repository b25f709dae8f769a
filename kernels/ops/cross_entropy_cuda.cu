#include <algorithm>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vector_access.cuh"

namespace motley::cuda {
namespace {

// A block takes one row: a pass forwards over the logits, one backwards over them for the gradient,
// which finds in the caches what the first has read last.

/// exp(x) as exactly as what it is computed from deserves.
template <class T>
__device__ float exponential(float x) {
  return __expf(x);
}
template <>
__device__ float exponential<float>(float x) {
  return expf(x);
}

/// Threads of a row: so many that each has the same number of packs, and two blocks of them fit
/// wherever a multiprocessor runs 1536 threads.
constexpr int kMostRowThreads = 768;
template <class T>
unsigned row_threads(int64_t vocab) {
  const int64_t packs = std::max<int64_t>(1, ceil_div(vocab, kPack<T>));
  const int64_t rounds = ceil_div(packs, kMostRowThreads);
  return static_cast<unsigned>(ceil_div(ceil_div(packs, rounds), 32) * 32);
}

/// Σ exp(x - largest) of what a thread has seen so far, relative to the largest of it (online
/// softmax, Milakov & Gimelshein 2018).
template <class T>
struct RunningSum {
  float largest = -INFINITY, sum = 0;

  template <int N>
  __device__ void add(const Pack<float, N>& x) {
    float most = largest;
    for (int i = 0; i < N; ++i) most = fmaxf(most, x.at[i]);
    const float base = relative_to(most);
    Pack<float, N> terms;
    for (int i = 0; i < N; ++i) terms.at[i] = exponential<T>(x.at[i] - base);
    for (int half = N / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) terms.at[i] += terms.at[i + half];
    sum = sum * exponential<T>(largest - base) + terms.at[0];
    largest = most;
  }
  /// The sums of the threads of the block, for all of them.
  __device__ float2 join() const {
    const float most = block_max(largest);
    return {most, block_sum(sum * exponential<T>(largest - relative_to(most)))};
  }
  /// Of nothing but -inf, the exponentials are 0, not NaN.
  __device__ static float relative_to(float most) { return most == -INFINITY ? 0.0f : most; }
};

/// Largest of a row and the sum of exponentials relative to it. Called by all threads of the block.
template <Access kAccess, class T>
__device__ float2 largest_and_sum(const T* logits, int64_t vocab) {
  constexpr int N = kPack<T>;
  RunningSum<T> seen;
  const int64_t packs = vocab / N;
  int64_t pack = threadIdx.x;
  for (; pack + blockDim.x < packs; pack += 2 * blockDim.x) {
    const auto one = load_pack<kAccess, N>(logits + pack * N);
    const auto two = load_pack<kAccess, N>(logits + (pack + blockDim.x) * N);
    seen.add(wide(one));
    seen.add(wide(two));
  }
  if (pack < packs) seen.add(wide(load_pack<kAccess, N>(logits + pack * N)));
  for (int64_t i = packs * N + threadIdx.x; i < vocab; i += blockDim.x)
    seen.add(wide(load_pack<Access::kScalar, 1>(logits + i)));
  return seen.join();
}

/// What turns a logit into its gradient: exp(logit - largest)·factor, less `scale` for the target.
struct Gradient {
  float largest, factor, scale;
  int64_t target;

  template <class T, int N>
  __device__ Pack<T, N> of(const Pack<T, N>& logits, int64_t first) const {
    Pack<float, N> result = wide(logits);
    for (int i = 0; i < N; ++i) result.at[i] = exponential<T>(result.at[i] - largest) * factor;
    if (target >= first && target < first + N)
      for (int i = 0; i < N; ++i) result.at[i] -= first + i == target ? scale : 0.0f;
    return rounded<T>(result);
  }
};

/// What lies between rows becomes 0. d_logits may be logits. Called by all threads of the block.
template <Access kAccess, class T>
__device__ void write_gradient(const Gradient& gradient, const T* logits, T* d_logits,
                               int64_t vocab, int64_t stride) {
  constexpr int N = kPack<T>;
  const auto read = [&](int64_t pack) {
    return load_pack<kAccess, N, Reuse::kNotSoon>(logits + pack * N);
  };
  const auto write = [&](int64_t pack, const Pack<T, N>& x) {
    store_pack<kAccess, Reuse::kNotSoon>(d_logits + pack * N, gradient.of(x, pack * N));
  };
  const int64_t packs = vocab / N;
  for (int64_t i = packs * N + threadIdx.x; i < vocab; i += blockDim.x)
    store_pack<Access::kScalar>(d_logits + i,
                                gradient.of(load_pack<Access::kScalar, 1>(logits + i), i));
  for (int64_t i = vocab + threadIdx.x; i < stride; i += blockDim.x) put(d_logits + i, 0.0f);
  int64_t pack = packs - 1 - threadIdx.x;
  for (; pack >= blockDim.x; pack -= 2 * blockDim.x) {
    const auto one = read(pack), two = read(pack - blockDim.x);
    write(pack, one);
    write(pack - blockDim.x, two);
  }
  if (pack >= 0) write(pack, read(pack));
}

struct RowShape {
  int64_t vocab, stride;  ///< elements held, and from one row to the next
  int64_t first_token = 0;
  const double* scale = nullptr;  ///< null: 1

  __device__ float factor() const { return scale == nullptr ? 1.0f : static_cast<float>(*scale); }
};

/// One block for each row. d_logits may be null or logits.
template <Access kAccess, class T>
__global__ void __launch_bounds__(kMostRowThreads)
    loss_of_row(RowShape shape, const T* all_logits, const int32_t* targets, float* losses,
                T* d_logits) {
  const int64_t row = blockIdx.x;
  const T* logits = all_logits + row * shape.stride;
  const int64_t target = targets[row];
  const float target_logit = wide(logits[target]);  // before it is overwritten
  const float2 found = largest_and_sum<kAccess>(logits, shape.vocab);
  if (threadIdx.x == 0) losses[row] = found.x + logf(found.y) - target_logit;
  if (d_logits == nullptr) return;
  write_gradient<kAccess>(Gradient{found.x, shape.factor() / found.y, shape.factor(), target},
                          logits, d_logits + row * shape.stride, shape.vocab, shape.stride);
}

/// One block for each row.
template <Access kAccess, class T>
__global__ void __launch_bounds__(kMostRowThreads)
    stats_of_row(RowShape shape, const T* all_logits, const int32_t* targets, float* stats) {
  const int64_t row = blockIdx.x;
  const T* logits = all_logits + row * shape.stride;
  const int64_t target = targets[row] - shape.first_token;
  const float2 found = largest_and_sum<kAccess>(logits, shape.vocab);
  if (threadIdx.x != 0) return;
  stats[row * 3] = found.x;
  stats[row * 3 + 1] = found.y;
  stats[row * 3 + 2] = target >= 0 && target < shape.vocab ? wide(logits[target]) : 0.0f;
}

/// The parts of all rows, [parts, rows, 3].
struct Parts {
  const float* stats;
  int64_t parts, rows;

  __device__ const float* of(int64_t part, int64_t row) const {
    return stats + (part * rows + row) * 3;
  }
};

/// One block for each row, each of whose threads joins the few parts. d_logits may be null or
/// logits.
template <Access kAccess, class T>
__global__ void __launch_bounds__(kMostRowThreads)
    loss_of_parts(RowShape shape, Parts parts, const T* logits, const int32_t* targets,
                  float* losses, T* d_logits) {
  const int64_t row = blockIdx.x;
  float largest = -INFINITY, sum = 0, target_logit = 0;
  for (int64_t part = 0; part < parts.parts; ++part)
    largest = fmaxf(largest, parts.of(part, row)[0]);
  for (int64_t part = 0; part < parts.parts; ++part) {
    sum += parts.of(part, row)[1] * expf(parts.of(part, row)[0] - largest);
    target_logit += parts.of(part, row)[2];
  }
  if (threadIdx.x == 0) losses[row] = largest + logf(sum) - target_logit;
  if (d_logits == nullptr) return;
  const int64_t target = targets[row] - shape.first_token;
  write_gradient<kAccess>(Gradient{largest, shape.factor() / sum, shape.factor(), target},
                          logits + row * shape.stride, d_logits + row * shape.stride, shape.vocab,
                          shape.stride);
}

/// Whether every row starts on 16 bytes.
template <class T>
bool rows_on_16_bytes(const RowShape& shape, const T* logits, const T* d_logits) {
  return on_16_bytes(logits, d_logits) && shape.stride % kPack<T> == 0;
}

}  // namespace

template <Precision kPrecision>
void cross_entropy(Device& device, const CrossEntropyArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  if (args.rows == 0) return;
  const RowShape shape{args.vocab, args.row_stride(), 0, args.scale.as<const double>()};
  const auto* logits = args.logits.as<const T>();
  auto* d_logits = args.d_logits.as<T>();
  with_access(rows_on_16_bytes<T>(shape, logits, d_logits), [&]<Access kAccess>() {
    launch(gpu, "cross entropy", {static_cast<unsigned>(args.rows), row_threads<T>(args.vocab)},
           loss_of_row<kAccess, T>, shape, logits, args.targets.as<const int32_t>(),
           args.losses.as<float>(), d_logits);
  });
}

template <Precision kPrecision>
void cross_entropy_part(Device& device, const CrossEntropyPartArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  if (args.rows == 0) return;
  const RowShape shape{args.vocab, args.row_stride(), args.first_token};
  const auto* logits = args.logits.as<const T>();
  with_access(rows_on_16_bytes<T>(shape, logits, nullptr), [&]<Access kAccess>() {
    launch(gpu, "cross entropy of a part",
           {static_cast<unsigned>(args.rows), row_threads<T>(args.vocab)}, stats_of_row<kAccess, T>,
           shape, logits, args.targets.as<const int32_t>(), args.stats.as<float>());
  });
}

template <Precision kPrecision>
void cross_entropy_combine(Device& device, const CrossEntropyCombineArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  if (args.rows == 0) return;
  const RowShape shape{args.vocab, args.row_stride(), args.first_token,
                       args.scale.as<const double>()};
  const Parts parts{args.stats.as<const float>(), args.parts, args.rows};
  const auto* logits = args.logits.as<const T>();
  auto* d_logits = args.d_logits.as<T>();
  with_access(rows_on_16_bytes<T>(shape, logits, d_logits), [&]<Access kAccess>() {
    launch(gpu, "cross entropy over parts",
           {static_cast<unsigned>(args.rows), row_threads<T>(args.vocab)},
           loss_of_parts<kAccess, T>, shape, parts, logits, args.targets.as<const int32_t>(),
           args.losses.as<float>(), d_logits);
  });
}

MOTLEY_IN_EACH_PRECISION(cross_entropy, CrossEntropyArgs);
MOTLEY_IN_EACH_PRECISION(cross_entropy_part, CrossEntropyPartArgs);
MOTLEY_IN_EACH_PRECISION(cross_entropy_combine, CrossEntropyCombineArgs);

}  // namespace motley::cuda
