#pragma once
// Where the rows of a head lie, and who computes which of them.

#include <cuda_runtime.h>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace motley::cuda {

/// Rows of one head: position t at data + t·stride.
template <class T>
struct HeadRows {
  T* data;
  int64_t stride;

  __device__ T* at(int position) const { return data + position * stride; }
};

/// What of a position the scores of its row need again in backward.
struct alignas(8) RowStatistics {
  float lse;       ///< of the scaled scores, in base 2; infinite beyond the context
  float weighted;  ///< Σ p·d_p = d_out·out; 0 beyond the context
};

/// The shape. `head` counts over samples and heads; each has a tile of positions to a block.
struct Heads {
  int samples, context, heads, head_dim;
  float scale;
  int64_t width, qkv_stride;  ///< elements from a row of out or of qkv to the next

  template <class Args>
  static Heads of(const Args& args) {
    return {static_cast<int>(args.samples),
            static_cast<int>(args.context),
            static_cast<int>(args.heads),
            static_cast<int>(args.head_dim),
            1 / sqrtf(static_cast<float>(args.head_dim)),
            args.heads * args.head_dim,
            3 * args.heads * args.head_dim};
  }
  __host__ __device__ int64_t count() const { return int64_t{samples} * heads; }
  __host__ __device__ int tiles(int rows) const { return (context + rows - 1) / rows; }
  /// Blocks for tiles of so many rows.
  unsigned blocks(int rows) const { return static_cast<unsigned>(count() * tiles(rows)); }

  /// Of q (which 0), k (1) or v (2).
  template <class T>
  __device__ HeadRows<T> part(T* qkv, int head, int which) const {
    const int64_t first = int64_t{head / heads} * context * qkv_stride;
    return {qkv + first + which * width + int64_t{head % heads} * head_dim, qkv_stride};
  }
  /// Of out.
  template <class T>
  __device__ HeadRows<T> plain(T* out, int head) const {
    const int64_t first = int64_t{head / heads} * context * width;
    return {out + first + int64_t{head % heads} * head_dim, width};
  }
  __device__ int64_t lse(int head, int position) const {
    return int64_t{head} * context + position;
  }
  /// Statistics are kept for whole blocks of positions.
  __host__ __device__ int padded_context() const {
    constexpr int kBlock = static_cast<int>(kAttentionBlock);
    return (context + kBlock - 1) / kBlock * kBlock;
  }
  __device__ const RowStatistics* statistics(const RowStatistics* all, int head,
                                             int position) const {
    return all + int64_t{head} * padded_context() + position;
  }
};

/// This block's head and the first row of its tile. Blocks of one head follow each other, so that
/// they find its rows in the cache; the tiles with the most work come first.
struct TilePlace {
  int head, first;

  enum class Longest { kFirstTile, kLastTile };
  __device__ TilePlace(const Heads& h, int rows, Longest longest) {
    const unsigned tiles = static_cast<unsigned>(h.tiles(rows));
    head = static_cast<int>(blockIdx.x / tiles);
    const int tile = static_cast<int>(blockIdx.x % tiles);
    first = rows * (longest == Longest::kLastTile ? static_cast<int>(tiles) - 1 - tile : tile);
  }
};

template <class T>
struct ForwardOperands {
  const T* qkv;
  T* out;
  float* lse;

  explicit ForwardOperands(const AttentionForwardArgs& args)
      : qkv(args.qkv.as<const T>()), out(args.out.as<T>()), lse(args.lse.as<float>()) {}
};

template <class T>
struct BackwardOperands {
  const T *qkv, *out;
  const float* lse;
  const T* d_out;
  T* d_qkv;
  RowStatistics* statistics;  ///< [samples·heads, padded_context]

  explicit BackwardOperands(const AttentionBackwardArgs& args)
      : qkv(args.qkv.as<const T>()),
        out(args.out.as<const T>()),
        lse(args.lse.as<const float>()),
        d_out(args.d_out.as<const T>()),
        d_qkv(args.d_qkv.as<T>()),
        statistics(args.workspace.as<RowStatistics>()) {}
};

constexpr float kLog2E = 1.44269504088896340736f;

/// Whether rows of heads can be read and written 16 bytes at a time.
template <class T, class... Pointers>
bool in_vectors(const Heads& h, const Pointers*... bases) {
  constexpr size_t kBytes = 16;
  const auto whole = [](const void* base) {
    return reinterpret_cast<uintptr_t>(base) % kBytes == 0;
  };
  return static_cast<size_t>(h.head_dim) * sizeof(T) % kBytes == 0 && (whole(bases) && ...);
}

// On tensor cores (attention_forward_cuda.cu, attention_backward_cuda.cu), kBf16 and kFp16: for
// sm_75 and later (kBf16: sm_80) and heads of at most kMostTensorColumns.
constexpr int kMostTensorColumns = 128;
template <Precision kPrecision>
void tensor_attention_forward(CudaDevice& gpu, const AttentionForwardArgs& args);
template <Precision kPrecision>
void tensor_attention_backward(CudaDevice& gpu, const AttentionBackwardArgs& args);

// For every GPU, precision and head_dim (attention_simt_cuda.cu).
template <Precision kPrecision>
void simt_attention_forward(CudaDevice& gpu, const AttentionForwardArgs& args);
template <Precision kPrecision>
void simt_attention_backward(CudaDevice& gpu, const AttentionBackwardArgs& args);

}  // namespace motley::cuda
