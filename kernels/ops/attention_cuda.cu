#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace motley::cuda {
namespace {

/// The shape, and where a head's rows lie. A block works on one position of one head: blockIdx.x is
/// the head, counted over samples and heads, blockIdx.y the position. A row of scores and one of
/// their gradients must fit in shared memory: contexts up to 6144.
struct Heads {
  int64_t context, heads, head_dim;
  float scale;

  __device__ int64_t width() const { return heads * head_dim; }
  __device__ int64_t row(int64_t position) const { return blockIdx.x / heads * context + position; }
  /// Of q (which 0), k (1) or v (2) at a position, within qkv.
  __device__ int64_t part(int64_t position, int which) const {
    return row(position) * 3 * width() + which * width() + blockIdx.x % heads * head_dim;
  }
  /// Of a position within out.
  __device__ int64_t plain(int64_t position) const {
    return row(position) * width() + blockIdx.x % heads * head_dim;
  }
  __device__ int64_t lse(int64_t position) const { return blockIdx.x * context + position; }
  template <class T>
  __device__ float dot(const T* a, const T* b) const {
    float sum = 0;
    for (int64_t i = 0; i < head_dim; ++i) sum += wide(a[i]) * wide(b[i]);
    return sum;
  }
};

/// Row `t` of the scores against every position s <= t, in shared memory.
template <class T>
__global__ void forward(Heads h, const T* qkv, T* out, float* lse) {
  float* const p = dynamic_shared<float>();  // [context]
  const int64_t t = blockIdx.y;
  float largest = -INFINITY;
  for (int64_t s = threadIdx.x; s <= t; s += blockDim.x) {
    p[s] = h.scale * h.dot(qkv + h.part(t, 0), qkv + h.part(s, 1));
    largest = fmaxf(largest, p[s]);
  }
  largest = block_max(largest);
  float sum = 0;
  for (int64_t s = threadIdx.x; s <= t; s += blockDim.x) {
    p[s] = expf(p[s] - largest);
    sum += p[s];
  }
  sum = block_sum(sum);  // and every thread sees all of p
  for (int64_t i = threadIdx.x; i < h.head_dim; i += blockDim.x) {
    float value = 0;
    for (int64_t s = 0; s <= t; ++s) value += p[s] * wide(qkv[h.part(s, 2) + i]);
    put(out + h.plain(t) + i, value / sum);
  }
  if (threadIdx.x == 0) lse[h.lse(t)] = largest + logf(sum);
}

template <class T>
struct Backward {
  const T *qkv, *out;
  const float* lse;
  const T* d_out;
  T* d_qkv;
};

struct ScoreGradient {
  float p;    ///< the probability
  float d_s;  ///< of the score, times the scale
};

/// d_s = p·(d_p - Σ p·d_p), where Σ p·d_p = d_out·out.
template <class T>
__device__ ScoreGradient score_gradient(const Heads& h, const Backward<T>& b, int64_t t,
                                        int64_t s) {
  const T* d_out = b.d_out + h.plain(t);
  const float score = h.scale * h.dot(b.qkv + h.part(t, 0), b.qkv + h.part(s, 1));
  const float p = expf(score - b.lse[h.lse(t)]);
  const float d_p = h.dot(d_out, b.qkv + h.part(s, 2));
  return {p, h.scale * p * (d_p - h.dot(d_out, b.out + h.plain(t)))};
}

/// d_q = scale·d_s·k: position t gathers from s <= t.
template <class T>
__global__ void query_gradient(Heads h, Backward<T> b) {
  float* const d_s = dynamic_shared<float>();  // [context]
  const int64_t t = blockIdx.y;
  for (int64_t s = threadIdx.x; s <= t; s += blockDim.x) d_s[s] = score_gradient(h, b, t, s).d_s;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < h.head_dim; i += blockDim.x) {
    float value = 0;
    for (int64_t s = 0; s <= t; ++s) value += d_s[s] * wide(b.qkv[h.part(s, 1) + i]);
    put(b.d_qkv + h.part(t, 0) + i, value);
  }
}

/// d_k = scale·d_sᵀ·q and d_v = pᵀ·d_out: position s gathers from t >= s.
template <class T>
__global__ void key_value_gradient(Heads h, Backward<T> b) {
  float* const shared = dynamic_shared<float>();  // [2, context]
  float *p = shared, *d_s = shared + h.context;
  const int64_t s = blockIdx.y;
  for (int64_t t = s + threadIdx.x; t < h.context; t += blockDim.x) {
    const ScoreGradient gradient = score_gradient(h, b, t, s);
    p[t] = gradient.p;
    d_s[t] = gradient.d_s;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < h.head_dim; i += blockDim.x) {
    float d_k = 0, d_v = 0;
    for (int64_t t = s; t < h.context; ++t) {
      d_k += d_s[t] * wide(b.qkv[h.part(t, 0) + i]);
      d_v += p[t] * wide(b.d_out[h.plain(t) + i]);
    }
    put(b.d_qkv + h.part(s, 1) + i, d_k);
    put(b.d_qkv + h.part(s, 2) + i, d_v);
  }
}

constexpr int kThreads = 128;

template <class Args>
Heads heads_of(const Args& args) {
  return {args.context, args.heads, args.head_dim, 1 / sqrtf(static_cast<float>(args.head_dim))};
}

template <class Args>
dim3 blocks_of(const Args& args) {
  return dim3(static_cast<unsigned>(args.samples * args.heads),
              static_cast<unsigned>(args.context));
}

/// Shared memory for `rows` rows of scores.
template <class Args>
size_t shared_bytes(const Args& args, int64_t rows) {
  return static_cast<size_t>(rows * args.context) * sizeof(float);
}

}  // namespace

template <Precision kPrecision>
void attention_forward(Device& device, const AttentionForwardArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  if (args.samples * args.context == 0) return;
  launch(gpu, "attention", {blocks_of(args), kThreads, shared_bytes(args, 1)}, forward<T>,
         heads_of(args), args.qkv.as<const T>(), args.out.as<T>(), args.lse.as<float>());
}

template <Precision kPrecision>
void attention_backward(Device& device, const AttentionBackwardArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  if (args.samples * args.context == 0) return;
  const Backward<T> backward{args.qkv.as<const T>(), args.out.as<const T>(),
                             args.lse.as<const float>(), args.d_out.as<const T>(),
                             args.d_qkv.as<T>()};
  launch(gpu, "attention query gradient", {blocks_of(args), kThreads, shared_bytes(args, 1)},
         query_gradient<T>, heads_of(args), backward);
  launch(gpu, "attention key and value gradient",
         {blocks_of(args), kThreads, shared_bytes(args, 2)}, key_value_gradient<T>, heads_of(args),
         backward);
}

MOTLEY_IN_EACH_PRECISION(attention_forward, AttentionForwardArgs);
MOTLEY_IN_EACH_PRECISION(attention_backward, AttentionBackwardArgs);

}  // namespace motley::cuda
