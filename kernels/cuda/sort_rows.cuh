#pragma once
// Sorts rows by the token they hold: a stable radix sort, one digit after the other from the lowest
// (as Merrill & Grimshaw 2010 have it on GPUs), without atomics whose order would matter.

#include "kernels/cuda/launch.cuh"
#include "kernels/ops/embedding_workspace.h"

namespace motley::cuda {

/// The rows by rising key; those of one key in rising order.
struct SortedRows {
  const int32_t* keys;
  const int32_t* order;
  int64_t rows;
  int32_t none;  ///< the key of rows that count for nothing: above all others

  /// The key of place i; below the first -1, behind the last `none`.
  __device__ int32_t key_at(int64_t i) const {
    if (i < 0) return -1;
    return i < rows ? keys[i] : none;
  }
};

namespace sorting {

inline constexpr int kDigits = EmbeddingWorkspace::kDigits;
inline constexpr int kThreads = kDigits, kWarps = kThreads / 32;
inline constexpr unsigned kAll = 0xffffffffu;

__device__ inline int digit_of(int32_t key, int pass) {
  return key >> (pass * EmbeddingWorkspace::kDigitBits) & (kDigits - 1);
}

/// Σ of `value` over the threads before this one. Called by all threads of the block.
__device__ inline int sum_before(int value) {
  __shared__ int warps[kWarps];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int sum = value;
  for (int offset = 1; offset < 32; offset *= 2) {
    const int lower = __shfl_up_sync(kAll, sum, offset);
    if (lane >= static_cast<unsigned>(offset)) sum += lower;
  }
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  for (unsigned other = 0; other < warp; ++other) sum += warps[other];
  return sum - value;
}

/// What the passes of one sort have in common.
struct Sort {
  int64_t rows, tile_rows, tiles;
  int passes;
  int32_t* counts;  ///< [passes, tiles, kDigits]: rows of a tile of what a pass reads, by digit

  __device__ int32_t* counts_of(int pass, int64_t tile) const {
    return counts + (pass * tiles + tile) * kDigits;
  }
};

/// Writes the keys, and counts the digits that the first pass sorts by. A block takes one tile.
/// KeyOf: key of a row.
template <class KeyOf>
__global__ void __launch_bounds__(kThreads)
    write_keys(Sort sort, KeyOf key_of, int32_t* keys, int32_t* order) {
  __shared__ int counts[kDigits];
  counts[threadIdx.x] = 0;
  __syncthreads();
  const int64_t begin = blockIdx.x * sort.tile_rows;
  const int64_t end = begin + sort.tile_rows < sort.rows ? begin + sort.tile_rows : sort.rows;
  for (int64_t row = begin + threadIdx.x; row < end; row += kThreads) {
    const int32_t key = key_of(row);
    keys[row] = key;
    order[row] = static_cast<int32_t>(row);
    atomicAdd(&counts[digit_of(key, 0)], 1);
  }
  __syncthreads();
  sort.counts_of(0, blockIdx.x)[threadIdx.x] = counts[threadIdx.x];
}

/// Counts of a warp's share of a tile by digit, and of places behind the last row.
using ShareCounts = int[kDigits + 1];

/// Calls visit(place, key, digit, peers) for the places of this warp's share of the tile, 32 at a
/// time in rising order; peers: the lanes with the same digit. Behind the last row the digit is
/// kDigits. Called by whole warps.
template <class Visit>
__device__ void visit_share(const Sort& sort, const int32_t* keys, int pass, const Visit& visit) {
  const int64_t share = sort.tile_rows / kWarps;
  const int64_t begin = blockIdx.x * sort.tile_rows + threadIdx.x / 32 * share;
  for (int64_t first = begin; first < begin + share && first < sort.rows; first += 32) {
    const int64_t place = first + threadIdx.x % 32;
    const int32_t key = place < sort.rows ? keys[place] : 0;
    const int digit = place < sort.rows ? digit_of(key, pass) : kDigits;
    visit(place, key, digit, __match_any_sync(kAll, digit));
    __syncwarp();
  }
}

/// Turns counts[warp][digit] into the place where the warp's share of that digit goes.
__device__ inline void place_digits(const Sort& sort, int pass, ShareCounts* counts) {
  const unsigned digit = threadIdx.x;
  int before = 0, total = 0;
  for (int64_t tile = 0; tile < sort.tiles; ++tile) {
    const int count = sort.counts_of(pass, tile)[digit];
    if (tile < blockIdx.x) before += count;
    total += count;
  }
  int place = sum_before(total) + before;
  for (int warp = 0; warp < kWarps; ++warp) {
    const int count = counts[warp][digit];
    counts[warp][digit] = place;
    place += count;
  }
}

/// What a pass reads and writes.
struct Lists {
  const int32_t *keys, *order;
  int32_t *sorted_keys, *sorted_order;
};

/// Sorts by one digit, and counts those that the next pass sorts by. A block takes one tile, each
/// of its warps a share of neighbouring places.
static __global__ void __launch_bounds__(kThreads) sort_digit(Sort sort, Lists lists, int pass) {
  __shared__ ShareCounts counts[kWarps];
  int* const own = counts[threadIdx.x / 32];
  const unsigned lower_lanes = (1u << threadIdx.x % 32) - 1;
  for (int warp = 0; warp < kWarps; ++warp) counts[warp][threadIdx.x] = 0;
  if (threadIdx.x < kWarps) counts[threadIdx.x][kDigits] = 0;
  __syncthreads();
  visit_share(sort, lists.keys, pass, [&](int64_t, int32_t, int digit, unsigned peers) {
    if ((peers & lower_lanes) == 0) own[digit] += __popc(peers);
  });
  __syncthreads();
  place_digits(sort, pass, counts);
  __syncthreads();
  visit_share(sort, lists.keys, pass, [&](int64_t place, int32_t key, int digit, unsigned peers) {
    const int before = __popc(peers & lower_lanes);
    const int64_t sorted = own[digit] + before;
    __syncwarp();
    if (before == 0) own[digit] += __popc(peers);
    if (place >= sort.rows) return;
    lists.sorted_keys[sorted] = key;
    lists.sorted_order[sorted] = lists.order[place];
    if (pass + 1 < sort.passes)
      atomicAdd(&sort.counts_of(pass + 1, sorted / sort.tile_rows)[digit_of(key, pass + 1)], 1);
  });
}

}  // namespace sorting

/// Sorts the rows in the workspace, which lies at `words`: key_of(row) is 0 to `none`.
template <class KeyOf>
SortedRows sort_rows(CudaDevice& gpu, const EmbeddingWorkspace& workspace, int32_t* words,
                     int64_t rows, int32_t none, const KeyOf& key_of) {
  const sorting::Sort sort{rows, workspace.tile_rows, workspace.tiles, workspace.passes,
                           words + workspace.counts};
  const LaunchShape shape{static_cast<unsigned>(workspace.tiles), sorting::kThreads};
  const auto keys = [&](int pass) { return words + workspace.keys[pass % 2]; };
  const auto order = [&](int pass) { return words + workspace.order[pass % 2]; };
  const auto count_bytes =
      static_cast<size_t>(workspace.words - workspace.counts) * sizeof(int32_t);
  gpu.check(cudaMemsetAsync(sort.counts, 0, count_bytes, gpu.stream()), "sort of tokens");
  launch(gpu, "sort of tokens", shape, sorting::write_keys<KeyOf>, sort, key_of, keys(0), order(0));
  for (int pass = 0; pass < sort.passes; ++pass)
    launch(gpu, "sort of tokens", shape, sorting::sort_digit, sort,
           sorting::Lists{keys(pass), order(pass), keys(pass + 1), order(pass + 1)}, pass);
  return {keys(sort.passes), order(sort.passes), rows, none};
}

}  // namespace motley::cuda
