#pragma once
// Sums over the rows of a matrix, one for each column.

#include "kernels/cuda/launch.cuh"

namespace motley::cuda {

/// A block sums kSumColumns columns with kSumRowThreads threads each: thread y takes the rows
/// y, y + kSumRowThreads ..., then the partial sums are joined in pairs. The order depends on the
/// number of rows alone.
inline constexpr int kSumColumns = 32, kSumRowThreads = 8;

inline unsigned column_blocks(int64_t columns) {
  return static_cast<unsigned>(ceil_div(columns, kSumColumns));
}
inline dim3 column_threads() { return dim3(kSumColumns, kSumRowThreads); }

__device__ inline int64_t summed_column() {
  return static_cast<int64_t>(blockIdx.x) * kSumColumns + threadIdx.x;
}

/// Σ term(row) over the rows, valid where threadIdx.y is 0. Called by all threads of the block;
/// term is called only where `in_range`.
template <class Term>
__device__ float sum_rows(int64_t rows, bool in_range, const Term& term) {
  __shared__ float partial[kSumRowThreads][kSumColumns];
  float sum = 0;
  for (int64_t row = threadIdx.y; in_range && row < rows; row += kSumRowThreads) sum += term(row);
  __syncthreads();  // the array may still be read from an earlier call
  partial[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = kSumRowThreads / 2; half > 0; half /= 2) {
    if (threadIdx.y < half)
      partial[threadIdx.y][threadIdx.x] += partial[threadIdx.y + half][threadIdx.x];
    __syncthreads();
  }
  return partial[0][threadIdx.x];
}

}  // namespace motley::cuda
