#include <algorithm>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/row_sum.cuh"
#include "kernels/cuda/sort_rows.cuh"
#include "kernels/cuda/vector_access.cuh"

namespace motley::cuda {
namespace {

constexpr unsigned kWholeWarp = 0xffffffffu;
constexpr int kBlockWarps = kBlockThreads / 32;

struct Shape {
  int64_t rows, context, width, vocab, first_token;
};

/// Whether the table holds the token; its row in it, or `vocab`.
struct HeldRow {
  const int32_t* tokens;
  int64_t first_token, vocab;

  __device__ int32_t operator()(int64_t row) const {
    const int64_t held = tokens[row] - first_token;
    return static_cast<int32_t>(held >= 0 && held < vocab ? held : vocab);
  }
};

template <int N, class T>
__device__ Pack<float, N> sum_of(const Pack<float, N>& a, const Pack<T, N>& b) {
  Pack<float, N> sum;
  for (int i = 0; i < N; ++i) sum.at[i] = a.at[i] + wide(b.at[i]);
  return sum;
}

/// gradient[i] += sum[i].
template <Access kAccess, int N>
__device__ void add_to(float* gradient, const Pack<float, N>& sum) {
  store_pack<kAccess>(gradient, sum_of(sum, load_pack<kAccess, N>(gradient)));
}

// A lane's elements are a pack of kVector, one of kScalar: sums of columns are the same either way.
template <Access kAccess, class T>
inline constexpr int kLaneElements = kAccess == Access::kVector ? kPack<T> : 1;

// --- forward

/// Warps take rows. position_table may be null.
template <Access kAccess, class T>
__global__ void __launch_bounds__(kBlockThreads)
    embed(Shape shape, HeldRow held_row, const T* __restrict__ token_table,
          const T* __restrict__ position_table, T* __restrict__ out) {
  constexpr int N = kLaneElements<kAccess, T>;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * kBlockWarps;
  for (int64_t row = element_index() / 32; row < shape.rows; row += warps) {
    const int64_t held = held_row(row), position = row % shape.context;
    for (int64_t column = threadIdx.x % 32 * N; column < shape.width; column += 32 * N) {
      Pack<float, N> sum{};
      if (held < shape.vocab)
        sum = wide(load_pack<kAccess, N>(token_table + held * shape.width + column));
      if (position_table != nullptr)
        sum = sum_of(sum, load_pack<kAccess, N>(position_table + position * shape.width + column));
      store_pack<kAccess>(out + row * shape.width + column, rounded<T>(sum));
    }
  }
}

// --- gradient of the token table

/// Σ over the places [begin, end) of a warp's lanes, in rising order, of the rows of d_out that
/// start at `columns`. `row`: of each lane.
template <Access kAccess, int N, class T>
__device__ Pack<float, N> sum_of_rows(const T* columns, int64_t width, int32_t row, int begin,
                                      int end) {
  constexpr int kAtOnce = 4;
  const auto read = [&](int lane) {
    const int64_t of_lane = __shfl_sync(kWholeWarp, row, lane);
    return load_pack<kAccess, N>(columns + of_lane * width);
  };
  Pack<float, N> sum{};
  int lane = begin;
  for (; lane + kAtOnce <= end; lane += kAtOnce) {
    Pack<T, N> rows[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) rows[i] = read(lane + i);
    for (int i = 0; i < kAtOnce; ++i) sum = sum_of(sum, rows[i]);
  }
  for (; lane < end; ++lane) sum = sum_of(sum, read(lane));
  return sum;
}

constexpr int kWindow = EmbeddingWorkspace::kWindow;
static_assert(2 * kWindow == 32, "a warp holds a window and the one before it");

/// Sums the sorted rows, a warp for each window and as many columns as its lanes hold. A token
/// whose rows are all in the window, or in it and the one before, is done: they are added to its
/// gradient. Of another's rows each window but the first leaves its sum in partial_sums [windows,
/// width]; the first window's rows are the second's to sum. So one token in many rows keeps many
/// warps busy, and every sum has one writer.
template <Access kAccess, class T>
__global__ void __launch_bounds__(kBlockThreads)
    sum_windows(Shape shape, SortedRows sorted, const T* d_out, float* token_gradient,
                float* partial_sums) {
  constexpr int N = kLaneElements<kAccess, T>;
  const int64_t window = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int64_t first = window * kWindow;
  if (first >= shape.rows) return;
  const int64_t place = first - kWindow + threadIdx.x;
  const int32_t token = sorted.key_at(place);
  const int32_t row = place >= 0 && place < shape.rows ? sorted.order[place] : 0;
  const int32_t earlier = sorted.key_at(first - kWindow - 1);
  const int32_t next = sorted.key_at(first + kWindow);
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * 32 + threadIdx.x) * N;
  const bool in_range = column < shape.width;
  const T* columns = d_out + (in_range ? column : 0);
  for (int lane = kWindow; lane < 32;) {
    const int32_t of_group = __shfl_sync(kWholeWarp, token, lane);
    if (of_group == sorted.none) break;  // these come last
    const unsigned members = __ballot_sync(kWholeWarp, token == of_group);
    const int begin = __ffs(members) - 1, end = begin + __popc(members);
    const bool long_before = begin == 0 && earlier == of_group;
    const bool goes_on = end == 32 && next == of_group;
    lane = end;
    if (begin >= kWindow && goes_on) break;  // the next window's
    const auto sum =
        sum_of_rows<kAccess, N>(columns, shape.width, row, long_before ? kWindow : begin, end);
    if (!in_range) continue;
    if (long_before || goes_on)
      store_pack<kAccess>(partial_sums + window * shape.width + column, sum);
    else
      add_to<kAccess>(token_gradient + of_group * shape.width + column, sum);
  }
}

/// Windows from `first` on that begin with the token of `first`. Called by whole warps.
__device__ int64_t windows_alike(const SortedRows& sorted, int64_t first, int64_t windows) {
  const int32_t token = sorted.key_at(first * kWindow);
  int64_t alike = first, other = windows;  // narrowed from both sides, 32 probes at a time
  while (other - alike > 1) {
    const int64_t step = (other - alike + 32) / 33;
    const int64_t probe = alike + (threadIdx.x % 32 + 1) * step;
    const bool same = probe < other && sorted.key_at(probe * kWindow) == token;
    alike += __popc(__ballot_sync(kWholeWarp, same)) * step;
    other = alike + step < other ? alike + step : other;
  }
  return other - first;
}

/// Adds the partial sums of each token to its gradient. A block takes 32 windows and
/// kSumColumns columns, and of the tokens those whose first partial sum is one of these windows'.
__global__ void join_windows(SortedRows sorted, int64_t windows, int64_t width,
                             const float* partial_sums, float* token_gradient) {
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * 32,
                place = (begin + threadIdx.x) * kWindow;
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kSumColumns + threadIdx.x;
  const int32_t token = sorted.key_at(place);
  const bool is_first = token != sorted.none && sorted.key_at(place - 1) == token &&
                        sorted.key_at(place - kWindow - 1) != token &&
                        sorted.key_at(place + kWindow) == token;
  for (unsigned found = __ballot_sync(kWholeWarp, is_first); found != 0; found &= found - 1) {
    const int lane = __ffs(found) - 1;
    const int64_t first = begin + lane, count = windows_alike(sorted, first, windows);
    const float sum = sum_rows(count, column < width, [&](int64_t i) {
      return partial_sums[(first + i) * width + column];
    });
    if (threadIdx.y == 0 && column < width)
      token_gradient[sorted.key_at(first * kWindow) * width + column] += sum;
  }
}

// --- gradient of the position table

/// A thread takes a pack of columns of one position and adds its rows in rising order.
template <Access kAccess, class T>
__global__ void __launch_bounds__(kBlockThreads)
    add_to_positions(Shape shape, const T* d_out, float* position_gradient) {
  constexpr int N = kLaneElements<kAccess, T>, kAtOnce = 4;
  const int64_t table = shape.context * shape.width, end = shape.rows * shape.width;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t first = element_index() * N; first < table; first += threads * N) {
    Pack<float, N> sum{};
    int64_t i = first;  // from one row of this position to the next
    for (; i + (kAtOnce - 1) * table < end; i += kAtOnce * table) {
      Pack<T, N> rows[kAtOnce];
      for (int j = 0; j < kAtOnce; ++j) rows[j] = load_pack<kAccess, N>(d_out + i + j * table);
      for (int j = 0; j < kAtOnce; ++j) sum = sum_of(sum, rows[j]);
    }
    for (; i < end; i += table) sum = sum_of(sum, load_pack<kAccess, N>(d_out + i));
    add_to<kAccess>(position_gradient + first, sum);
  }
}

}  // namespace

template <Precision kPrecision>
void embedding_forward(Device& device, const EmbeddingForwardArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  if (args.rows * args.width == 0) return;
  const auto* tokens = args.token_table.as<const T>();
  const auto* positions = args.position_table.as<const T>();
  auto* out = args.out.as<T>();
  const bool vectors = on_16_bytes(tokens, positions, out) && args.width % kPack<T> == 0;
  with_access(vectors, [&]<Access kAccess>() {
    launch(gpu, "embedding", {blocks_in_strides(gpu, args.rows * 32, 2)}, embed<kAccess, T>,
           Shape{args.rows, args.context, args.width, args.vocab, args.first_token},
           HeldRow{args.tokens.as<const int32_t>(), args.first_token, args.vocab}, tokens,
           positions, out);
  });
}

namespace {

template <class T>
void add_token_gradient(CudaDevice& gpu, const Shape& shape, const EmbeddingBackwardArgs& args) {
  const EmbeddingWorkspace workspace(shape.rows, shape.width, shape.vocab);
  auto* words = args.workspace.as<int32_t>();
  MOTLEY_CHECK(words != nullptr, "the backward pass of an embedding has no workspace");
  const HeldRow held_row{args.tokens.as<const int32_t>(), shape.first_token, shape.vocab};
  const SortedRows sorted =
      sort_rows(gpu, workspace, words, shape.rows, static_cast<int32_t>(shape.vocab), held_row);
  auto* partial_sums = reinterpret_cast<float*>(words + workspace.partial_sums);
  const auto* d_out = args.d_out.as<const T>();
  auto* gradient = args.token_gradient.as<float>();
  const bool vectors = on_16_bytes(words, d_out, gradient) && shape.width % kPack<T> == 0;
  with_access(vectors, [&]<Access kAccess>() {
    const dim3 blocks(static_cast<unsigned>(ceil_div(workspace.windows, kBlockWarps)),
                      static_cast<unsigned>(ceil_div(shape.width, 32 * kLaneElements<kAccess, T>)));
    launch(gpu, "token gradient", {blocks, dim3(32, kBlockWarps)}, sum_windows<kAccess, T>, shape,
           sorted, d_out, gradient, partial_sums);
  });
  const dim3 blocks(static_cast<unsigned>(ceil_div(workspace.windows, 32)),
                    column_blocks(shape.width));
  launch(gpu, "token gradient", {blocks, column_threads()}, join_windows, sorted, workspace.windows,
         shape.width, partial_sums, gradient);
}

template <class T>
void add_position_gradient(CudaDevice& gpu, const Shape& shape, const T* d_out, float* gradient) {
  const bool vectors = on_16_bytes(d_out, gradient) && shape.width % kPack<T> == 0;
  with_access(vectors, [&]<Access kAccess>() {
    const int64_t packs = shape.context * shape.width / kLaneElements<kAccess, T>;
    launch(gpu, "position gradient", {blocks_in_strides(gpu, packs, 1)},
           add_to_positions<kAccess, T>, shape, d_out, gradient);
  });
}

}  // namespace

template <Precision kPrecision>
void embedding_backward(Device& device, const EmbeddingBackwardArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  const Shape shape{args.rows, args.context, args.width, args.vocab, args.first_token};
  if (!args.accumulate) {
    const auto element = static_cast<int64_t>(sizeof(float));
    zero(device, {args.token_gradient, args.vocab * args.width * element});
    if (!args.position_gradient.null())
      zero(device, {args.position_gradient, args.context * args.width * element});
  }
  if (args.rows * args.width == 0) return;
  if (args.vocab > 0) add_token_gradient<T>(gpu, shape, args);
  if (!args.position_gradient.null())
    add_position_gradient(gpu, shape, args.d_out.as<const T>(), args.position_gradient.as<float>());
}

MOTLEY_IN_EACH_PRECISION(embedding_forward, EmbeddingForwardArgs);
MOTLEY_IN_EACH_PRECISION(embedding_backward, EmbeddingBackwardArgs);

}  // namespace motley::cuda
