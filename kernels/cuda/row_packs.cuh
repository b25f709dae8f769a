#pragma once
// Rows of a matrix by threads: each has packs of 16 bytes of its row, in registers while they are
// few, and the threads of a row sum up what they found. Which element belongs to which thread, and
// so the order of sums, depends on the width alone; addresses only decide how a pack is loaded.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vector_access.cuh"

namespace motley::cuda {

/// Elements of a row that a thread takes at a time, as floats.
template <class T>
using RowPack = Pack<float, kPack<T>>;

/// The first `count` of a pack's elements as they are stored; the others are 0. With kVector that
/// is all of them.
template <class T, Access kAccess, class Stored>
__device__ Pack<Stored, kPack<T>> load_stored(const Stored* at, int64_t count) {
  if constexpr (kAccess == Access::kVector) {
    return load_pack<kAccess, kPack<T>>(at);
  } else {
    Pack<Stored, kPack<T>> pack{};
    for (int i = 0; i < kPack<T>; ++i)
      if (i < count) pack.at[i] = at[i];
    return pack;
  }
}

template <class T, Access kAccess, class Stored>
__device__ RowPack<T> load_row_pack(const Stored* at, int64_t count) {
  return wide(load_stored<T, kAccess>(at, count));
}

template <class T, Access kAccess, class Stored>
__device__ void store_row_pack(Stored* at, const RowPack<T>& pack, int64_t count) {
  if constexpr (kAccess == Access::kVector) {
    store_pack<kAccess>(at, rounded<Stored>(pack));
  } else {
    for (int i = 0; i < kPack<T>; ++i)
      if (i < count) put(at + i, pack.at[i]);
  }
}

/// Whether rows of `width` elements, the first at each of these addresses, can be read 16 bytes at
/// a time.
template <class T, class... Stored>
bool rows_on_16_bytes(int64_t width, const Stored*... first) {
  return width % kPack<T> == 0 && on_16_bytes(first...);
}

/// Of a block that works on rows: few enough that each may have 128 registers.
inline constexpr int kMostRowThreads = 512;

/// How a block works on rows of `width` elements: `rows` of them at once, each with `threads`
/// threads (whole warps) that have `packs` packs each; and what of it the running thread has.
struct RowPlace {
  int64_t width;
  int threads, rows, packs;

  /// With at most `packs_each` for a thread, more only in rows for which the threads of a block
  /// would be too few.
  template <class T>
  static RowPlace of(int64_t width, int64_t packs_each) {
    constexpr int64_t kMostThreads = kMostRowThreads;
    const int64_t row_packs = ceil_div(width, kPack<T>);
    const int64_t packs = std::max(packs_each, ceil_div(row_packs, kMostThreads));
    const auto threads = static_cast<int>(ceil_div(ceil_div(row_packs, packs), 32)) * 32;
    return {width, threads, threads < kBlockThreads ? kBlockThreads / threads : 1,
            static_cast<int>(ceil_div(row_packs, threads))};
  }
  LaunchShape launch_shape(int64_t blocks, size_t shared_bytes = 0) const {
    return {static_cast<unsigned>(blocks), static_cast<unsigned>(threads * rows), shared_bytes};
  }

  /// Of the row's packs the thread has number `p` from this element on, ...
  template <class T>
  __device__ int64_t first(int p) const {
    const int thread = static_cast<int>(threadIdx.x) % threads;
    return (static_cast<int64_t>(p) * threads + thread) * kPack<T>;
  }
  /// ... so many elements; none or less: there is no such pack.
  template <class T>
  __device__ int64_t count(int p) const {
    return width - first<T>(p);
  }
  __device__ int row_in_block() const { return static_cast<int>(threadIdx.x) / threads; }
  __device__ bool leads() const { return static_cast<int>(threadIdx.x) % threads == 0; }
};

/// Calls body.operator()<place.packs>() where so many packs fit the registers of a thread, which
/// are at most kMost, else <0>(): whoever works on a wider row reads it as often as needed.
template <int kMost, int kPacks = 1, class Body>
void with_packs(const RowPlace& place, const Body& body) {
  if constexpr (kPacks > kMost)
    body.template operator()<0>();
  else if (place.packs == kPacks)
    body.template operator()<kPacks>();
  else
    with_packs<kMost, kPacks + 1>(place, body);
}

/// The sum over the threads of a row of each of two values, in a tree by the number of threads.
/// Called by all threads of the block, by turns with `turn` 0 and 1.
__device__ inline float2 row_sums(float2 value, int threads, int turn) {
  constexpr unsigned kAll = 0xffffffffu;
  __shared__ float2 warps[2][32];
  for (int offset = 16; offset > 0; offset /= 2) {
    value.x += __shfl_xor_sync(kAll, value.x, offset);
    value.y += __shfl_xor_sync(kAll, value.y, offset);
  }
  if (threads == 32) return value;
  const int warp = static_cast<int>(threadIdx.x) / 32, row_warps = threads / 32;
  if (threadIdx.x % 32 == 0) warps[turn][warp] = value;
  __syncthreads();
  const int first = warp / row_warps * row_warps;
  value = warps[turn][first];
  for (int other = first + 1; other < first + row_warps; ++other) {
    value.x += warps[turn][other].x;
    value.y += warps[turn][other].y;
  }
  return value;
}

}  // namespace motley::cuda
