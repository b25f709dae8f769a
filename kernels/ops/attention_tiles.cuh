#pragma once
// Tiles of a head's rows in shared memory and products of them on tensor cores. Blocks are of
// kTileThreads; each warp owns 16·kM rows of a product's left operand.

#include "kernels/cuda/tensor_core.cuh"
#include "kernels/ops/attention_heads.cuh"

namespace motley::cuda {

constexpr int kTileThreads = 128, kTileWarps = kTileThreads / 32;

__device__ inline int lane_index() { return static_cast<int>(threadIdx.x) % 32; }
__device__ inline int warp_index() { return static_cast<int>(threadIdx.x) / 32; }

/// Accumulators of a product of 16·kM rows and 8·kN columns.
template <int kM, int kN>
using Sums = float[kM][kN][4];

/// Calls take(element, m, n, i) for all that the thread has.
template <int kM, int kN, class Take>
__device__ void for_sums(Sums<kM, kN>& sums, const Take& take) {
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int m = 0; m < kM; ++m) take(sums[m][n][i], m, n, i);
}

/// Row of the product that element i of its m-th block of 16 rows is in, and column of its n-th
/// block of 8.
__device__ inline int sum_row(int m, int i) { return m * 16 + lane_index() / 4 + i / 2 * 8; }
__device__ inline int sum_column(int n, int i) { return n * 8 + lane_index() % 4 * 2 + i % 2; }

/// Where elements lie to the diagonal, on which row and column are the same position.
struct Diagonal {
  int offset;

  /// Of a product whose first row and first column are these positions.
  __device__ Diagonal(int first_row, int first_column)
      : offset(first_row - first_column + lane_index() / 4 - lane_index() % 4 * 2) {}
  __device__ bool left_of_element(int m, int n, int i) const { return distance(m, n, i) > offset; }
  __device__ bool right_of_element(int m, int n, int i) const { return distance(m, n, i) < offset; }

 private:
  /// sum_column - sum_row but for what depends on the thread.
  __device__ static constexpr int distance(int m, int n, int i) {
    return n * 8 + i % 2 - m * 16 - i / 2 * 8;
  }
};

/// Rows of kColumns elements; those beyond head_dim are zero. Chunks of eight elements change
/// places within a row so that eight rows below each other lie in different banks.
template <class T, int kColumns>
struct Tile {
  static constexpr int kChunks = kColumns / 8;
  T* data;

  __device__ T* at(int row, int chunk) const {
    const int swizzle = kColumns % 64 == 0 ? row & 7 : row >> 1 & 3;
    return data + row * kColumns + (chunk ^ swizzle) * 8;
  }
  __device__ Tile below(int rows) const { return {data + rows * kColumns}; }

  /// Begins to copy kRows rows from `first` on; called by all threads of the block. Rows that are
  /// beyond the context become zero.
  template <int kRows>
  __device__ void load(const Heads& h, const HeadRows<const T>& rows, int first,
                       bool vectors) const {
    constexpr int kAtOnce = kTileThreads / kChunks >= 32   ? 32
                            : kTileThreads / kChunks >= 16 ? 16
                                                           : 8;
    static_assert(kRows % kAtOnce == 0);
    const int row = static_cast<int>(threadIdx.x) / kChunks;
    const int chunk = static_cast<int>(threadIdx.x) % kChunks;
    if (row >= kAtOnce) return;
    const int after = h.context - first - row;  // rows that are there, from this thread's first on
    const int elements = h.head_dim - chunk * 8;
    const T* from = rows.at(first + row) + chunk * 8;
    if (vectors) {
#pragma unroll
      for (int i = 0; i < kRows; i += kAtOnce, from += kAtOnce * rows.stride)
        copy_async(at(row + i, chunk), from, i < after && elements > 0);
    } else {
#pragma unroll 1
      for (int i = 0; i < kRows; i += kAtOnce, from += kAtOnce * rows.stride)
        load_elements(at(row + i, chunk), from, i < after ? elements : 0);
    }
  }

  /// Of a product's left operand: 16 rows from `row` on, columns 16·k and on.
  __device__ void left(unsigned (&a)[4], int row, int k) const {
    load_matrices(a, at(row + lane_index() % 16, 2 * k + lane_index() / 16));
  }
  /// Of a right operand that is this tile transposed: columns 16·k and on of 16 rows, which are
  /// two blocks of 8 columns of the product.
  __device__ void right_transposed(unsigned (&b)[2][2], int row, int k) const {
    unsigned r[4];
    load_matrices(r,
                  at(row + lane_index() % 8 + lane_index() / 16 * 8, 2 * k + lane_index() / 8 % 2));
    split(r, b);
  }
  /// Of a right operand that is this tile: 16 rows from `row` on, columns 16·n and on.
  __device__ void right(unsigned (&b)[2][2], int row, int n) const {
    unsigned r[4];
    load_matrices_transposed(r, at(row + lane_index() % 16, 2 * n + lane_index() / 16));
    split(r, b);
  }

 private:
  /// As copy_async, of as many of eight elements as are present.
  __device__ static void load_elements(T* to, const T* from, int present) {
    T zero;
    put(&zero, 0.0f);
#pragma unroll 1
    for (int e = 0; e < 8; ++e) to[e] = e < present ? from[e] : zero;
  }
  __device__ static void split(const unsigned (&r)[4], unsigned (&b)[2][2]) {
    for (int i = 0; i < 4; ++i) b[i / 2][i % 2] = r[i];
  }
};

/// sums += left·(the first 8·kN rows of right)ᵀ; fragment(a, m, k) loads the left operand's.
template <class T, int kColumns, int kM, int kN, class Fragment>
__device__ void multiply_transposed(Sums<kM, kN>& sums, const Fragment& fragment,
                                    const Tile<T, kColumns>& right) {
#pragma unroll
  for (int k = 0; k < kColumns / 16; ++k) {
    unsigned a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) fragment(a[m], m, k);
#pragma unroll
    for (int n = 0; n < kN / 2; ++n) {
      unsigned b[2][2];
      right.right_transposed(b, n * 16, k);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add(sums[m][2 * n], a[m], b[0], T());
        multiply_add(sums[m][2 * n + 1], a[m], b[1], T());
      }
    }
  }
}

/// What one product has summed, rounded to T, as the left operand of the next.
template <class T, int kM, int kN>
struct Weights {
  unsigned a[kM][kN / 2][4];

  __device__ Weights() : a{} {}
  __device__ explicit Weights(const Sums<kM, kN>& sums) {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          a[m][n / 2][n % 2 * 2 + half] = pack<T>(sums[m][n][2 * half], sums[m][n][2 * half + 1]);
  }
};

/// sums += weights·(the first 8·kN rows of right).
template <class T, int kColumns, int kM, int kN>
__device__ void multiply_weights(Sums<kM, kColumns / 8>& sums, const Weights<T, kM, kN>& weights,
                                 const Tile<T, kColumns>& right) {
#pragma unroll
  for (int k = 0; k < kN / 2; ++k) {
#pragma unroll
    for (int n = 0; n < kColumns / 16; ++n) {
      unsigned b[2][2];
      right.right(b, k * 16, n);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add(sums[m][2 * n], weights.a[m][k], b[0], T());
        multiply_add(sums[m][2 * n + 1], weights.a[m][k], b[1], T());
      }
    }
  }
}

/// Stores factor(m, i)·sums as rows `first` and on of `to`, by way of `own`: 16·kM rows of shared
/// memory that only this warp uses.
template <class T, int kColumns, int kM, class Factor>
__device__ void store_rows(const Sums<kM, kColumns / 8>& sums, const Factor& factor,
                           const Tile<T, kColumns>& own, const Heads& h, const HeadRows<T>& to,
                           int first, bool vectors) {
  constexpr int kChunks = kColumns / 8;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kChunks; ++n)
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        T* place = own.at(sum_row(m, i), n) + lane_index() % 4 * 2;
        *reinterpret_cast<unsigned*>(place) =
            pack<T>(factor(m, i) * sums[m][n][i], factor(m, i) * sums[m][n][i + 1]);
      }
  __syncwarp();
#pragma unroll 1
  for (int i = 0; i < kM * 16 * kChunks / 32; ++i) {
    const unsigned index = static_cast<unsigned>(i * 32 + lane_index());
    const int row = static_cast<int>(index / kChunks), chunk = static_cast<int>(index % kChunks);
    if (first + row >= h.context || chunk * 8 >= h.head_dim) continue;
    const uint4 bits = *reinterpret_cast<const uint4*>(own.at(row, chunk));
    T* place = to.at(first + row) + chunk * 8;
    if (vectors) {
      *reinterpret_cast<uint4*>(place) = bits;
    } else {
      T elements[8];
      memcpy(elements, &bits, sizeof(elements));
      for (int e = 0; e < 8 && chunk * 8 + e < h.head_dim; ++e) place[e] = elements[e];
    }
  }
}

/// Shared memory for so many rows.
template <class T, int kColumns>
constexpr size_t tile_bytes(int rows) {
  return static_cast<size_t>(rows) * kColumns * sizeof(T);
}

/// Calls run.template operator()<columns>() with the width of tiles for heads of head_dim.
template <class Run>
void for_tile_width(int head_dim, const Run& run) {
  if (head_dim <= 32)
    run.template operator()<32>();
  else if (head_dim <= 64)
    run.template operator()<64>();
  else if (head_dim <= 96)
    run.template operator()<96>();
  else
    run.template operator()<kMostTensorColumns>();
}

}  // namespace motley::cuda
