#include "core/check.h"
#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/row_packs.cuh"

namespace motley::cuda {
namespace {

/// Packs of a row that a thread keeps at most. Forward it gets as many, so that few threads have to
/// agree on a sum; backward it needs the registers for more.
constexpr int kForwardPacks = 4, kBackwardPacks = 2;

template <class T>
struct Forward {
  const T *x, *residual;
  const float *gain, *bias;
  T *sum, *out;
  float *mean, *rstd;
  int64_t rows;
  RowPlace place;
};

/// The rows as they are normalised, of which the running thread has kPacks packs in registers; with
/// 0, it reads them each time. Where there is a residual, read() adds it, rounds and stores.
template <class T, Access kAccess, int kPacks>
class NormalisedRow {
 public:
  __device__ NormalisedRow(const Forward<T>& f, int64_t row) : f_(f), row_(row) {
    for (int p = 0; p < kPacks; ++p) x_[p] = read(p);
  }
  __device__ int packs() const { return kPacks == 0 ? f_.place.packs : kPacks; }
  __device__ bool has(int p) const { return row_ < f_.rows && count(p) > 0; }
  __device__ int64_t count(int p) const { return f_.place.template count<T>(p); }
  __device__ int64_t first(int p) const { return f_.place.template first<T>(p); }

  /// For the first time; zeros beyond the row's end.
  __device__ RowPack<T> first_read(int p) const { return kPacks == 0 ? read(p) : x_[p]; }
  /// From the second time on; the row has it.
  __device__ RowPack<T> again(int p) const {
    if constexpr (kPacks > 0) return x_[p];
    const T* stored = f_.residual == nullptr ? f_.x : f_.sum;
    return load_row_pack<T, kAccess>(stored + row_ * f_.place.width + first(p), count(p));
  }

 private:
  __device__ RowPack<T> read(int p) const;

  const Forward<T>& f_;
  const int64_t row_;
  RowPack<T> x_[kPacks == 0 ? 1 : kPacks];
};

template <class T, Access kAccess, int kPacks>
__device__ RowPack<T> NormalisedRow<T, kAccess, kPacks>::read(int p) const {
  if (!has(p)) return {};
  const int64_t at = row_ * f_.place.width + first(p);
  auto x = load_row_pack<T, kAccess>(f_.x + at, count(p));
  if (f_.residual == nullptr) return x;
  const auto residual = load_row_pack<T, kAccess>(f_.residual + at, count(p));
  for (int i = 0; i < kPack<T>; ++i) {
    T stored;
    put(&stored, x.at[i] + residual.at[i]);
    x.at[i] = wide(stored);
  }
  store_row_pack<T, kAccess>(f_.sum + at, x, count(p));
  return x;
}

template <class T, Access kAccess, int kPacks>
__global__ void __launch_bounds__(kMostRowThreads) normalise(Forward<T> f) {
  const RowPlace place = f.place;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * place.rows + place.row_in_block();
  const auto width = static_cast<float>(place.width);
  const NormalisedRow<T, kAccess, kPacks> x(f, row);
  float sum = 0, squares = 0;
  for (int p = 0; p < x.packs(); ++p) {
    const RowPack<T> pack = x.first_read(p);
    for (int i = 0; i < kPack<T>; ++i) sum += pack.at[i];
  }
  const float mean = row_sums({sum, 0}, place.threads, 0).x / width;
  for (int p = 0; p < x.packs(); ++p) {
    if (!x.has(p)) continue;
    const RowPack<T> pack = x.again(p);
    for (int i = 0; i < kPack<T>; ++i)
      if (i < x.count(p)) squares += (pack.at[i] - mean) * (pack.at[i] - mean);
  }
  const float variance = row_sums({squares, 0}, place.threads, 1).x / width;
  const float rstd = 1 / sqrtf(variance + static_cast<float>(kLayerNormEpsilon));
  if (row >= f.rows) return;
  for (int p = 0; p < x.packs(); ++p) {
    if (!x.has(p)) continue;
    const int64_t first = x.first(p), count = x.count(p);
    const auto gain = load_row_pack<T, kAccess>(f.gain + first, count);
    const auto bias = load_row_pack<T, kAccess>(f.bias + first, count);
    RowPack<T> out = x.again(p);
    for (int i = 0; i < kPack<T>; ++i)
      out.at[i] = (out.at[i] - mean) * rstd * gain.at[i] + bias.at[i];
    store_row_pack<T, kAccess>(f.out + row * place.width + first, out, count);
  }
  if (place.leads()) {
    f.mean[row] = mean;
    f.rstd[row] = rstd;
  }
}

template <class T>
struct Backward {
  const T *x, *d_out;
  const float *gain, *mean, *rstd;
  T* d_x;
  float* partial;  ///< [runs, 2, width]: gain, bias
  int64_t rows, rows_each;
  RowPlace place;
  bool accumulate_input;
};

/// What the threads of a block have of the sums over its rows, for one parameter, added up in the
/// order of the rows they work on.
template <class T, Access kAccess, int kPacks>
__device__ void store_partial(const RowPlace& place, RowPack<T> (&sum)[kPacks], float* partial) {
  auto* joined = dynamic_shared<float>();  // [width], used where several rows are worked on
  const int rows = place.rows;
  for (int turn = 0; turn < rows; ++turn) {
    __syncthreads();
    if (place.row_in_block() != turn) continue;
    for (int p = 0; p < kPacks; ++p) {
      const int64_t first = place.first<T>(p), count = place.count<T>(p);
      for (int i = 0; i < kPack<T>; ++i) {
        if (i >= count || rows == 1) continue;
        if (turn > 0) sum[p].at[i] += joined[first + i];
        joined[first + i] = sum[p].at[i];
      }
      if (turn == rows - 1 && count > 0) store_row_pack<T, kAccess>(partial + first, sum[p], count);
    }
  }
}

/// What a thread has read of a row, before it needs it.
template <class T, int kPacks>
struct RowRead {
  Pack<T, kPack<T>> x[kPacks], d_out[kPacks];
  float mean = 0, rstd = 0;
};

template <class T, Access kAccess, int kPacks>
__device__ RowRead<T, kPacks> read_ahead(const Backward<T>& b, int64_t row, int64_t end) {
  RowRead<T, kPacks> read{};
  if (row >= end) return read;
  read.mean = b.mean[row];
  read.rstd = b.rstd[row];
  for (int p = 0; p < kPacks; ++p) {
    const int64_t first = b.place.template first<T>(p), count = b.place.template count<T>(p);
    if (count <= 0) continue;
    read.x[p] = load_stored<T, kAccess>(b.x + row * b.place.width + first, count);
    read.d_out[p] = load_stored<T, kAccess>(b.d_out + row * b.place.width + first, count);
  }
  return read;
}

/// A block for each run of rows. With n = (x - mean)·rstd and g = d_out·gain:
/// d_x = rstd·(g - mean(g) - n·mean(g·n)); gradients of gain and bias: Σ d_out·n and Σ d_out.
template <class T, Access kAccess, int kPacks>
__global__ void __launch_bounds__(kMostRowThreads) gradients(Backward<T> b) {
  const RowPlace place = b.place;
  const auto width = static_cast<float>(place.width);
  const int64_t begin = blockIdx.x * b.rows_each;
  const int64_t end = begin + b.rows_each < b.rows ? begin + b.rows_each : b.rows;
  RowPack<T> gain[kPacks] = {}, gain_sum[kPacks] = {}, bias_sum[kPacks] = {};
  for (int p = 0; p < kPacks; ++p)
    if (place.count<T>(p) > 0)
      gain[p] = load_row_pack<T, kAccess>(b.gain + place.first<T>(p), place.count<T>(p));
  auto next = read_ahead<T, kAccess, kPacks>(b, begin + place.row_in_block(), end);
  int turn = 0;
  for (int64_t first_row = begin; first_row < end; first_row += place.rows, turn ^= 1) {
    const int64_t row = first_row + place.row_in_block();
    const auto read = next;
    next = read_ahead<T, kAccess, kPacks>(b, row + place.rows, end);
    Pack<T, kPack<T>> old[kPacks] = {};
    RowPack<T> n[kPacks], g[kPacks];
    float2 sums = {0, 0};
    for (int p = 0; p < kPacks; ++p) {
      const int64_t first = place.first<T>(p), count = place.count<T>(p);
      if (b.accumulate_input && row < end && count > 0)
        old[p] = load_stored<T, kAccess>(b.d_x + row * place.width + first, count);
      for (int i = 0; i < kPack<T>; ++i) {
        const float d_out = wide(read.d_out[p].at[i]);
        n[p].at[i] = (wide(read.x[p].at[i]) - read.mean) * read.rstd;
        g[p].at[i] = d_out * gain[p].at[i];
        gain_sum[p].at[i] += d_out * n[p].at[i];
        bias_sum[p].at[i] += d_out;
        sums.x += g[p].at[i];
        sums.y += g[p].at[i] * n[p].at[i];
      }
    }
    sums = row_sums(sums, place.threads, turn);
    const float mean_g = sums.x / width, mean_gn = sums.y / width;
    for (int p = 0; p < kPacks && row < end; ++p) {
      const int64_t first = place.first<T>(p), count = place.count<T>(p);
      if (count <= 0) continue;
      RowPack<T> d = wide(old[p]);
      for (int i = 0; i < kPack<T>; ++i)
        d.at[i] += read.rstd * (g[p].at[i] - mean_g - n[p].at[i] * mean_gn);
      store_row_pack<T, kAccess>(b.d_x + row * place.width + first, d, count);
    }
  }
  float* partial = b.partial + static_cast<int64_t>(blockIdx.x) * 2 * place.width;
  store_partial<T, kAccess>(place, gain_sum, partial);
  store_partial<T, kAccess>(place, bias_sum, partial + place.width);
}

/// Of wide rows: what the block's run of them has of the sums for gain and bias, pack by pack.
template <class T, Access kAccess>
__device__ void gradients_of_parameters(const Backward<T>& b, int64_t begin, int64_t end) {
  float* partial = b.partial + static_cast<int64_t>(blockIdx.x) * 2 * b.place.width;
  for (int p = 0; p < b.place.packs; ++p) {
    const int64_t first = b.place.template first<T>(p), count = b.place.template count<T>(p);
    if (count <= 0) continue;
    RowPack<T> gain = {}, bias = {};
    for (int64_t row = begin; row < end; ++row) {
      const float mean = b.mean[row], rstd = b.rstd[row];
      const auto x = load_row_pack<T, kAccess>(b.x + row * b.place.width + first, count);
      const auto d_out = load_row_pack<T, kAccess>(b.d_out + row * b.place.width + first, count);
      for (int i = 0; i < kPack<T>; ++i) {
        gain.at[i] += d_out.at[i] * ((x.at[i] - mean) * rstd);
        bias.at[i] += d_out.at[i];
      }
    }
    store_row_pack<T, kAccess>(partial + first, gain, count);
    store_row_pack<T, kAccess>(partial + b.place.width + first, bias, count);
  }
}

/// As gradients() for rows that do not fit the registers, one at a time: x and d_out are read once
/// for the parameters and twice for d_x.
template <class T, Access kAccess>
__global__ void __launch_bounds__(kMostRowThreads) gradients_of_wide_rows(Backward<T> b) {
  const RowPlace place = b.place;
  const auto width = static_cast<float>(place.width);
  const int64_t begin = blockIdx.x * b.rows_each;
  const int64_t end = begin + b.rows_each < b.rows ? begin + b.rows_each : b.rows;
  gradients_of_parameters<T, kAccess>(b, begin, end);
  int turn = 0;
  for (int64_t row = begin; row < end; ++row, turn ^= 1) {
    const float mean = b.mean[row], rstd = b.rstd[row];
    // Calls body(first, count, n, g) for each pack of the thread.
    const auto each_pack = [&](const auto& body) {
      for (int p = 0; p < place.packs; ++p) {
        const int64_t first = place.first<T>(p), count = place.count<T>(p);
        if (count <= 0) continue;
        auto n = load_row_pack<T, kAccess>(b.x + row * place.width + first, count);
        auto g = load_row_pack<T, kAccess>(b.d_out + row * place.width + first, count);
        const auto gain = load_row_pack<T, kAccess>(b.gain + first, count);
        for (int i = 0; i < kPack<T>; ++i) {
          n.at[i] = (n.at[i] - mean) * rstd;
          g.at[i] *= gain.at[i];
        }
        body(first, count, n, g);
      }
    };
    float2 sums = {0, 0};
    each_pack([&](int64_t, int64_t, const RowPack<T>& n, const RowPack<T>& g) {
      for (int i = 0; i < kPack<T>; ++i) {
        sums.x += g.at[i];
        sums.y += g.at[i] * n.at[i];
      }
    });
    sums = row_sums(sums, place.threads, turn);
    const float mean_g = sums.x / width, mean_gn = sums.y / width;
    each_pack([&](int64_t first, int64_t count, const RowPack<T>& n, const RowPack<T>& g) {
      T* const d_x = b.d_x + row * place.width + first;
      RowPack<T> d = {};
      if (b.accumulate_input) d = load_row_pack<T, kAccess>(d_x, count);
      for (int i = 0; i < kPack<T>; ++i) d.at[i] += rstd * (g.at[i] - mean_g - n.at[i] * mean_gn);
      store_row_pack<T, kAccess>(d_x, d, count);
    });
  }
}

template <class T, Access kAccess, int kPacks>
constexpr auto gradients_kernel() {
  if constexpr (kPacks == 0)
    return gradients_of_wide_rows<T, kAccess>;
  else
    return gradients<T, kAccess, kPacks>;
}

}  // namespace

template <Precision kPrecision>
void layer_norm_forward(Device& device, const LayerNormForwardArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  if (args.rows == 0) return;
  const Forward<T> forward{args.x.as<const T>(),
                           args.residual.as<const T>(),
                           args.gain.as<const float>(),
                           args.bias.as<const float>(),
                           args.sum.as<T>(),
                           args.out.as<T>(),
                           args.mean.as<float>(),
                           args.rstd.as<float>(),
                           args.rows,
                           RowPlace::of<T>(args.width, kForwardPacks)};
  const RowPlace& place = forward.place;
  const LaunchShape shape = place.launch_shape(ceil_div(args.rows, place.rows));
  const bool vectors = rows_on_16_bytes<T>(args.width, forward.x, forward.residual, forward.gain,
                                           forward.bias, forward.sum, forward.out);
  with_packs<kForwardPacks>(place, [&]<int kPacks> {
    with_access(vectors, [&]<Access kAccess> {
      launch(gpu, "layer norm", shape, normalise<T, kAccess, kPacks>, forward);
    });
  });
}

template <Precision kPrecision>
void layer_norm_backward(Device& device, const LayerNormBackwardArgs& args) {
  using T = Element<kPrecision>;
  constexpr int64_t kMostRuns = 384;  // three on each multiprocessor of the largest GPUs at once
  CudaDevice& gpu = cuda_device(device);
  if (args.width == 0) return;
  MOTLEY_CHECK_LE(2 * args.width, static_cast<int64_t>(CudaDevice::kWorkspace / sizeof(float)));
  const auto place = RowPlace::of<T>(args.width, 1);
  const RowRuns runs = RowRuns::of(args.rows, 2 * args.width, kMostRuns, place.rows);
  const Backward<T> backward{args.x.as<const T>(),
                             args.d_out.as<const T>(),
                             args.gain.as<const float>(),
                             args.mean.as<const float>(),
                             args.rstd.as<const float>(),
                             args.d_x.as<T>(),
                             static_cast<float*>(gpu.workspace()),
                             args.rows,
                             runs.rows_each,
                             place,
                             args.accumulate_input};
  const size_t joined = place.rows > 1 ? static_cast<size_t>(args.width) * sizeof(float) : 0;
  const LaunchShape shape = place.launch_shape(runs.count, joined);
  const bool vectors =
      rows_on_16_bytes<T>(args.width, backward.x, backward.d_out, backward.gain, backward.d_x);
  if (runs.count > 0)
    with_packs<kBackwardPacks>(place, [&]<int kPacks> {
      with_access(vectors, [&]<Access kAccess> {
        launch(gpu, "layer norm gradient", shape, gradients_kernel<T, kAccess, kPacks>(), backward);
      });
    });
  launch_join(gpu, "layer norm gradient", runs.count,
              {args.gain_gradient.as<float>(), args.bias_gradient.as<float>(), 2 * args.width,
               args.width, args.accumulate_parameters});
}

MOTLEY_IN_EACH_PRECISION(layer_norm_forward, LayerNormForwardArgs);
MOTLEY_IN_EACH_PRECISION(layer_norm_backward, LayerNormBackwardArgs);

}  // namespace motley::cuda
