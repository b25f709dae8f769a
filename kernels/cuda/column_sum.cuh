#pragma once
// Sums over the rows of a matrix, one for each column, in two steps: blocks sum runs of rows into
// the device's workspace, then the runs are joined. The order depends on the shape alone.

#include <algorithm>

#include "kernels/cuda/launch.cuh"

namespace motley::cuda {

/// How rows are cut into runs.
struct RowRuns {
  int64_t rows_each, count;

  /// At most `most` runs of a multiple of `multiple` rows, fewer where the workspace does not hold
  /// `columns` sums for each.
  static RowRuns of(int64_t rows, int64_t columns, int64_t most, int64_t multiple) {
    const auto room = static_cast<int64_t>(CudaDevice::kWorkspace / sizeof(float));
    const int64_t runs = std::clamp<int64_t>(room / columns, 1, most);
    const int64_t rows_each =
        std::max(ceil_div(ceil_div(rows, runs), multiple), int64_t{1}) * multiple;
    return {rows_each, ceil_div(rows, rows_each)};
  }
};

/// Where the sums of columns go: those of the first `split` to `first`, the others to `second`.
struct ColumnSums {
  float *first, *second;
  int64_t columns, split;
  bool accumulate;
};

inline constexpr int kJoinedColumns = 32, kJoiners = 32;

/// `partial` is [runs, columns]. Thread y of a column takes the runs y, y + kJoiners ..., then the
/// threads' sums are joined in pairs.
template <class Sums>
__global__ void join_runs(const float* partial, int64_t runs, Sums sums) {
  __shared__ float joined[kJoiners][kJoinedColumns];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kJoinedColumns + threadIdx.x;
  float sum = 0;
  for (int64_t run = threadIdx.y; column < sums.columns && run < runs; run += kJoiners)
    sum += partial[run * sums.columns + column];
  joined[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = kJoiners / 2; half > 0; half /= 2) {
    if (threadIdx.y < half)
      joined[threadIdx.y][threadIdx.x] += joined[threadIdx.y + half][threadIdx.x];
    __syncthreads();
  }
  if (threadIdx.y != 0 || column >= sums.columns) return;
  float* out = column < sums.split ? sums.first + column : sums.second + (column - sums.split);
  *out = (sums.accumulate ? *out : 0) + joined[0][threadIdx.x];
}

/// Joins the runs in the workspace.
inline void launch_join(CudaDevice& gpu, const char* what, int64_t runs, const ColumnSums& sums) {
  launch(gpu, what,
         {static_cast<unsigned>(ceil_div(sums.columns, kJoinedColumns)),
          dim3(kJoinedColumns, kJoiners)},
         join_runs<ColumnSums>, static_cast<const float*>(gpu.workspace()), runs, sums);
}

}  // namespace motley::cuda
