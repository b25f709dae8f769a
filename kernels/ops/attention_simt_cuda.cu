// Attention on any GPU, in any precision, with heads of any size: products in float by plain
// multiplications, 64 positions against 64. Matrices pass through shared memory in pieces of 32
// columns, so that neither the context nor head_dim is limited by it; of what is summed, a block
// makes kColumns columns, and heads that have more are cut into slices (blockIdx.y).
#include "kernels/ops/attention_heads.cuh"

namespace motley::cuda {
namespace {

constexpr int kSide = 16, kSimtThreads = kSide * kSide;  // thread (y, x) of a block
constexpr int kTile = 64, kEach = kTile / kSide;         // rows of a tile; of each thread
constexpr int kPiece = 32;                               // columns in shared memory at a time
// A row and the next begin four banks apart.
constexpr int kPieceStride = kPiece + 4, kTileStride = kTile + 4;

using SimtScores = float[kEach][kEach];
template <int kColumns>
using SimtSums = float[kEach][kColumns / kSide];

__device__ inline int thread_x() { return static_cast<int>(threadIdx.x) % kSide; }
__device__ inline int thread_y() { return static_cast<int>(threadIdx.x) / kSide; }
// Rows of scores and sums that a thread has lie next to each other, columns of scores kSide apart,
// columns of sums in groups of four.
__device__ inline int score_row(int i) { return thread_y() * kEach + i; }
__device__ inline int score_column(int j) { return thread_x() + kSide * j; }
__device__ inline int summed_column(int j) { return thread_x() * 4 + j / 4 * kTile + j % 4; }

struct alignas(16) SimtShared {
  float left[kTile * kPieceStride];    ///< [kTile rows, kPiece]
  float right[kTile * kPieceStride];   ///< the same, or [kPiece rows, kColumns]
  float weights[kTile * kTileStride];  ///< [kTile, kTile]
};
static_assert(kPiece * 64 <= kTile * kPieceStride);

/// A head's matrix from row `first` on.
template <class T>
struct SimtMatrix {
  HeadRows<const T> rows;
  int first;
};

/// to[kRows, kWidth] = columns from `column` on of rows from `row` on; zeros outside of the matrix.
template <int kRows, int kWidth, int kStride, class T>
__device__ void bring(float* to, const Heads& h, const SimtMatrix<T>& from, int row, int column) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kWidth; i += kSimtThreads) {
    const int r = i / kWidth, c = i % kWidth;
    const int position = from.first + row + r;
    to[r * kStride + c] = position < h.context && column + c < h.head_dim
                              ? wide(from.rows.at(position)[column + c])
                              : 0.0f;
  }
}

/// scores = a·bᵀ of kTile rows of each.
template <class T>
__device__ void simt_scores(SimtScores& scores, SimtShared& shared, const Heads& h,
                            const SimtMatrix<T>& a, const SimtMatrix<T>& b) {
  for (int i = 0; i < kEach; ++i)
    for (int j = 0; j < kEach; ++j) scores[i][j] = 0;
  for (int column = 0; column < h.head_dim; column += kPiece) {
    __syncthreads();  // all are done with what was there
    bring<kTile, kPiece, kPieceStride>(shared.left, h, a, 0, column);
    bring<kTile, kPiece, kPieceStride>(shared.right, h, b, 0, column);
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kPiece; c += 4) {
      float4 x[kEach], y[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        x[i] = *reinterpret_cast<const float4*>(shared.left + score_row(i) * kPieceStride + c);
        y[i] = *reinterpret_cast<const float4*>(shared.right + score_column(i) * kPieceStride + c);
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          scores[i][j] += x[i].x * y[j].x;
          scores[i][j] += x[i].y * y[j].y;
          scores[i][j] += x[i].z * y[j].z;
          scores[i][j] += x[i].w * y[j].w;
        }
    }
  }
}

/// sums += weights·(columns from `column` on of kTile rows of b).
template <int kColumns, class T>
__device__ void simt_add(SimtSums<kColumns>& sums, SimtShared& shared, const Heads& h,
                         const SimtScores& weights, const SimtMatrix<T>& b, int column) {
  constexpr int kHeld = 64 * kPiece / kColumns;  // rows of b in shared memory
  __syncthreads();                               // all are done with what was there
  for (int i = 0; i < kEach; ++i)
    for (int j = 0; j < kEach; ++j)
      shared.weights[score_row(i) * kTileStride + score_column(j)] = weights[i][j];
  for (int row = 0; row < kTile; row += kHeld) {
    if (row > 0) __syncthreads();
    bring<kHeld, kColumns, kColumns>(shared.right, h, b, row, column);
    __syncthreads();
#pragma unroll 4
    for (int r = 0; r < kHeld; ++r) {
      float weight[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        weight[i] = shared.weights[score_row(i) * kTileStride + row + r];
#pragma unroll
      for (int j = 0; j < kColumns / kSide; j += 4) {
        const float4 x =
            *reinterpret_cast<const float4*>(shared.right + r * kColumns + summed_column(j));
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          sums[i][j] += weight[i] * x.x;
          sums[i][j + 1] += weight[i] * x.y;
          sums[i][j + 2] += weight[i] * x.z;
          sums[i][j + 3] += weight[i] * x.w;
        }
      }
    }
  }
}

template <int kColumns, class T, class Factor>
__device__ void simt_store(const SimtSums<kColumns>& sums, const Factor& factor, const Heads& h,
                           const HeadRows<T>& to, int first, int column) {
#pragma unroll
  for (int i = 0; i < kEach; ++i)
#pragma unroll
    for (int j = 0; j < kColumns / kSide; ++j) {
      const int position = first + score_row(i), c = column + summed_column(j);
      if (position < h.context && c < h.head_dim) put(to.at(position) + c, factor(i) * sums[i][j]);
    }
}

/// Over the threads that share rows of scores.
template <class Combine>
__device__ float across_row(float value, Combine combine) {
#pragma unroll
  for (int offset = kSide / 2; offset > 0; offset /= 2)
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

/// One tile of keys more: scores become probabilities but for a factor of the row. `largest` and
/// `sum` are those of the rows up to now.
template <int kColumns>
__device__ void simt_softmax(SimtScores& s, float (&largest)[kEach], float (&sum)[kEach],
                             SimtSums<kColumns>& out) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    float most = largest[i], total = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) most = fmaxf(most, s[i][j]);
    most = across_row(most, MaxOf());
#pragma unroll
    for (int j = 0; j < kEach; ++j) total += s[i][j] = expf(s[i][j] - most);
    const float shrink = expf(largest[i] - most);
    largest[i] = most;
    sum[i] = sum[i] * shrink + across_row(total, SumOf());
#pragma unroll
    for (int j = 0; j < kColumns / kSide; ++j) out[i][j] *= shrink;
  }
}

template <class T, int kColumns>
__global__ __launch_bounds__(kSimtThreads) void simt_forward(Heads h, ForwardOperands<T> p) {
  SimtShared& shared = *dynamic_shared<SimtShared>();
  const TilePlace place(h, kTile, TilePlace::Longest::kLastTile);
  const int column = static_cast<int>(blockIdx.y) * kColumns;
  const auto rows = [&](int which, int first) {
    return SimtMatrix<T>{h.part(p.qkv, place.head, which), first};
  };
  float largest[kEach], sum[kEach] = {};
  for (float& most : largest) most = -INFINITY;
  SimtSums<kColumns> out{};
  for (int key = 0; key <= place.first; key += kTile) {
    SimtScores s;
    simt_scores(s, shared, h, rows(0, place.first), rows(1, key));
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        s[i][j] =
            key + score_column(j) > place.first + score_row(i) ? -INFINITY : h.scale * s[i][j];
    simt_softmax<kColumns>(s, largest, sum, out);
    simt_add<kColumns>(out, shared, h, s, rows(2, key), column);
  }
  simt_store<kColumns>(
      out, [&](int i) { return 1 / sum[i]; }, h, h.plain(p.out, place.head), place.first, column);
  if (blockIdx.y != 0 || thread_x() != 0) return;
  for (int i = 0; i < kEach; ++i)
    if (place.first + score_row(i) < h.context)
      p.lse[h.lse(place.head, place.first + score_row(i))] = largest[i] + logf(sum[i]);
}

/// lse and Σ p·d_p of the position whose d_out and out are in the thread's warp.
template <class T>
__global__ void simt_statistics(Heads h, BackwardOperands<T> b) {
  const int64_t row = element_index() / 32;
  if (row >= h.count() * h.padded_context()) return;  // whole warps
  const int head = static_cast<int>(row / h.padded_context());
  const int position = static_cast<int>(row % h.padded_context());
  const bool inside = position < h.context;
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x) % 32; inside && i < h.head_dim; i += 32)
    sum +=
        wide(h.plain(b.out, head).at(position)[i]) * wide(h.plain(b.d_out, head).at(position)[i]);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0)
    b.statistics[row] =
        inside ? RowStatistics{b.lse[h.lse(head, position)], sum} : RowStatistics{INFINITY, 0};
}

/// p and d_s of a score whose query has these statistics.
__device__ inline void differentiate(float& score, float& d_p, const RowStatistics& query,
                                     bool later, float scale) {
  score = later ? 0 : expf(scale * score - query.lse);
  d_p = score * (d_p - query.weighted);
}

/// d_k = scale·d_sᵀ·q and d_v = pᵀ·d_out: rows of scores are keys, columns queries.
template <class T, int kColumns>
__global__ __launch_bounds__(kSimtThreads) void simt_key_gradient(Heads h, BackwardOperands<T> b) {
  SimtShared& shared = *dynamic_shared<SimtShared>();
  const TilePlace place(h, kTile, TilePlace::Longest::kFirstTile);
  const int column = static_cast<int>(blockIdx.y) * kColumns;
  const auto rows = [&](int which, int first) {
    return SimtMatrix<T>{h.part(b.qkv, place.head, which), first};
  };
  SimtSums<kColumns> d_k{}, d_v{};
  for (int query = place.first; query < h.context; query += kTile) {
    const SimtMatrix<T> d_out{h.plain(b.d_out, place.head), query};
    SimtScores p, d_s;
    simt_scores(p, shared, h, rows(1, place.first), rows(0, query));
    simt_scores(d_s, shared, h, rows(2, place.first), d_out);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int of = query + score_column(j);
      const RowStatistics statistics = *h.statistics(b.statistics, place.head, of);
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        differentiate(p[i][j], d_s[i][j], statistics, of < place.first + score_row(i), h.scale);
    }
    simt_add<kColumns>(d_v, shared, h, p, d_out, column);
    simt_add<kColumns>(d_k, shared, h, d_s, rows(0, query), column);
  }
  simt_store<kColumns>(
      d_k, [&](int) { return h.scale; }, h, h.part(b.d_qkv, place.head, 1), place.first, column);
  simt_store<kColumns>(
      d_v, [](int) { return 1.0f; }, h, h.part(b.d_qkv, place.head, 2), place.first, column);
}

/// d_q = scale·d_s·k: rows of scores are queries, columns keys.
template <class T, int kColumns>
__global__ __launch_bounds__(kSimtThreads) void simt_query_gradient(Heads h,
                                                                    BackwardOperands<T> b) {
  SimtShared& shared = *dynamic_shared<SimtShared>();
  const TilePlace place(h, kTile, TilePlace::Longest::kLastTile);
  const int column = static_cast<int>(blockIdx.y) * kColumns;
  const auto rows = [&](int which, int first) {
    return SimtMatrix<T>{h.part(b.qkv, place.head, which), first};
  };
  RowStatistics statistics[kEach];
  for (int i = 0; i < kEach; ++i)
    statistics[i] = *h.statistics(b.statistics, place.head, place.first + score_row(i));
  SimtSums<kColumns> d_q{};
  for (int key = 0; key <= place.first; key += kTile) {
    SimtScores p, d_s;
    simt_scores(p, shared, h, rows(0, place.first), rows(1, key));
    simt_scores(d_s, shared, h, SimtMatrix<T>{h.plain(b.d_out, place.head), place.first},
                rows(2, key));
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        differentiate(p[i][j], d_s[i][j], statistics[i],
                      key + score_column(j) > place.first + score_row(i), h.scale);
    simt_add<kColumns>(d_q, shared, h, d_s, rows(1, key), column);
  }
  simt_store<kColumns>(
      d_q, [&](int) { return h.scale; }, h, h.part(b.d_qkv, place.head, 0), place.first, column);
}

/// Calls run.template operator()<columns>(shape) with the columns a block sums.
template <class Run>
void for_slices(const Heads& h, const Run& run) {
  const auto shape = [&](int columns) {
    const auto slices = static_cast<unsigned>(ceil_div(h.head_dim, columns));
    return LaunchShape{dim3(h.blocks(kTile), slices), kSimtThreads, sizeof(SimtShared)};
  };
  constexpr int kNarrow = 64, kWide = 128;
  if (h.head_dim <= kNarrow)
    run.template operator()<kNarrow>(shape(kNarrow));
  else
    run.template operator()<kWide>(shape(kWide));
}

}  // namespace

template <Precision kPrecision>
void simt_attention_forward(CudaDevice& gpu, const AttentionForwardArgs& args) {
  using T = Element<kPrecision>;
  const Heads h = Heads::of(args);
  for_slices(h, [&]<int kColumns>(const LaunchShape& shape) {
    launch(gpu, "attention", shape, simt_forward<T, kColumns>, h, ForwardOperands<T>(args));
  });
}

template <Precision kPrecision>
void simt_attention_backward(CudaDevice& gpu, const AttentionBackwardArgs& args) {
  using T = Element<kPrecision>;
  const Heads h = Heads::of(args);
  const BackwardOperands<T> operands(args);
  launch(gpu, "attention statistics", {blocks_for(h.count() * h.padded_context() * 32)},
         simt_statistics<T>, h, operands);
  for_slices(h, [&]<int kColumns>(const LaunchShape& shape) {
    launch(gpu, "attention key and value gradient", shape, simt_key_gradient<T, kColumns>, h,
           operands);
    launch(gpu, "attention query gradient", shape, simt_query_gradient<T, kColumns>, h, operands);
  });
}

#define MOTLEY_IN_PRECISION(precision)                                                       \
  template void simt_attention_forward<precision>(CudaDevice&, const AttentionForwardArgs&); \
  template void simt_attention_backward<precision>(CudaDevice&, const AttentionBackwardArgs&)
MOTLEY_IN_PRECISION(Precision::kFp32);
MOTLEY_IN_PRECISION(Precision::kBf16);
MOTLEY_IN_PRECISION(Precision::kFp16);
#undef MOTLEY_IN_PRECISION

}  // namespace motley::cuda
