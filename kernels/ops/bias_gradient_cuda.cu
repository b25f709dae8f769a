#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/row_packs.cuh"

namespace motley::cuda {
namespace {

/// A block sums a run of rows of this many packs of columns, with kRowThreads threads each.
constexpr int kPacks = 32, kRowThreads = 8;
constexpr int64_t kMostRuns = 256;

/// Thread y takes the rows y, y + kRowThreads ... of the run; the threads' sums are joined in
/// pairs. partial: [runs, n].
template <class T, Access kAccess>
__global__ void sum_run(const T* in, float* partial, int64_t rows, int64_t rows_each, int64_t n) {
  __shared__ RowPack<T> joined[kRowThreads][kPacks];
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kPacks + threadIdx.x) * kPack<T>;
  const int64_t run = blockIdx.y, begin = run * rows_each;
  const int64_t end = begin + rows_each < rows ? begin + rows_each : rows;
  RowPack<T> sum{};
  for (int64_t row = begin + threadIdx.y; first < n && row < end; row += kRowThreads) {
    const auto x = load_row_pack<T, kAccess>(in + row * n + first, n - first);
    for (int i = 0; i < kPack<T>; ++i) sum.at[i] += x.at[i];
  }
  joined[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = kRowThreads / 2; half > 0; half /= 2) {
    if (threadIdx.y < half)
      for (int i = 0; i < kPack<T>; ++i)
        joined[threadIdx.y][threadIdx.x].at[i] += joined[threadIdx.y + half][threadIdx.x].at[i];
    __syncthreads();
  }
  if (threadIdx.y == 0 && first < n)
    store_row_pack<T, kAccess>(partial + run * n + first, joined[0][threadIdx.x], n - first);
}

}  // namespace

template <Precision kPrecision>
void bias_gradient(Device& device, const BiasGradientArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  if (args.n == 0) return;
  const RowRuns runs = RowRuns::of(args.rows, args.n, kMostRuns, kRowThreads);
  const auto* in = args.in.as<const T>();
  auto* partial = static_cast<float*>(gpu.workspace());
  const dim3 blocks(static_cast<unsigned>(ceil_div(args.n, kPacks * kPack<T>)),
                    static_cast<unsigned>(runs.count));
  if (runs.count > 0)
    with_access(rows_on_16_bytes<T>(args.n, in), [&]<Access kAccess> {
      launch(gpu, "bias gradient", {blocks, dim3(kPacks, kRowThreads)}, sum_run<T, kAccess>, in,
             partial, args.rows, runs.rows_each, args.n);
    });
  launch_join(gpu, "bias gradient", runs.count,
              {args.out.as<float>(), nullptr, args.n, args.n, args.accumulate});
}

MOTLEY_IN_EACH_PRECISION(bias_gradient, BiasGradientArgs);

}  // namespace motley::cuda
