// Attention on tensor cores, forward, after FlashAttention-2 (Dao 2023): a block keeps 128 queries
// and goes through the keys in tiles, which it copies while it computes with the one before.
// Keys are brought while probabilities meet values, values while queries meet keys, so that one
// tile of each is enough; a warp owns 32 rows, which halves what it reads of them from shared
// memory for each product.
#include "kernels/ops/attention_tiles.cuh"

namespace motley::cuda {
namespace {

constexpr int kM = 2, kQueries = kTileWarps * kM * 16;
/// Of a tile: as many as there are registers for.
template <int kColumns>
constexpr int kKeysOf = kColumns <= 64 ? 64 : 32;

/// Softmax of rows that are seen a tile at a time: each thread has two rows of every block of 16.
struct OnlineSoftmax {
  float largest[kM][2], sum[kM][2];  ///< sum: of this thread's columns

  __device__ OnlineSoftmax() {
    for (int m = 0; m < kM; ++m)
      for (int half = 0; half < 2; ++half) {
        largest[m][half] = -INFINITY;
        sum[m][half] = 0;
      }
  }

  /// Turns scores into probabilities, but for a factor that all tiles of the row share, and
  /// brings what has been summed up to now to that factor. `to_base2`: scale in base 2.
  template <int kKeys, int kN>
  __device__ void take(Sums<kM, kKeys / 8>& s, float to_base2, Sums<kM, kN>& out) {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = largest[m][half];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
          most = fmaxf(most, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        const float shrink = fast_exp2((largest[m][half] - most) * to_base2);
        const float offset = most * to_base2;
        float total = 0;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i)
            total += s[m][n][i] = fast_exp2(s[m][n][i] * to_base2 - offset);
        largest[m][half] = most;
        sum[m][half] = sum[m][half] * shrink + total;
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          out[m][n][2 * half] *= shrink;
          out[m][n][2 * half + 1] *= shrink;
        }
      }
  }
  /// Joins the sums of the threads that share rows.
  __device__ void finish() {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& total = sum[m][half];
        total += __shfl_xor_sync(0xffffffffu, total, 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
      }
  }
};

/// The warp's queries: in registers where there is room, else read from shared memory each time.
template <class T, int kColumns>
struct Queries {
  static constexpr bool kHeld = kColumns <= 64;
  Tile<T, kColumns> tile;
  unsigned held[kHeld ? kM : 1][kHeld ? kColumns / 16 : 1][4];

  __device__ void hold() {
    if constexpr (kHeld) {
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int k = 0; k < kColumns / 16; ++k) tile.left(held[m][k], m * 16, k);
    }
  }
  __device__ void operator()(unsigned (&a)[4], int m, int k) const {
    if constexpr (kHeld) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = held[m][k][i];
    } else {
      tile.left(a, m * 16, k);
    }
  }
};

template <class T, int kColumns>
__global__ __launch_bounds__(kTileThreads) void tensor_forward(Heads h, ForwardOperands<T> p,
                                                               bool vectors) {
  constexpr int kKeys = kKeysOf<kColumns>;
  using Rows = Tile<T, kColumns>;
  const Rows q{dynamic_shared<T>()}, k = q.below(kQueries), v = k.below(kKeys);
  const TilePlace place(h, kQueries, TilePlace::Longest::kLastTile);
  const auto keys = h.part(p.qkv, place.head, 1), values = h.part(p.qkv, place.head, 2);
  q.template load<kQueries>(h, h.part(p.qkv, place.head, 0), place.first, vectors);
  k.template load<kKeys>(h, keys, 0, vectors);
  end_copy_group();

  const int own = warp_index() * kM * 16, first_row = place.first + own;
  const int tiles = h.tiles(kKeys) < (place.first + kQueries) / kKeys
                        ? h.tiles(kKeys)
                        : (place.first + kQueries) / kKeys;
  Queries<T, kColumns> queries{q.below(own), {}};
  OnlineSoftmax softmax;
  Sums<kM, kColumns / 8> out{};
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    wait_for_copies<0>();
    __syncthreads();  // the keys are there, and all are done with the values before
    v.template load<kKeys>(h, values, tile * kKeys, vectors);
    end_copy_group();
    if (tile == 0) queries.hold();
    const bool seen = tile * kKeys < first_row + kM * 16;
    Weights<T, kM, kKeys / 8> weights;
    if (seen) {
      Sums<kM, kKeys / 8> s{};
      multiply_transposed<T>(s, queries, k);
      const Diagonal diagonal(first_row, tile * kKeys);
      if (tile * kKeys + kKeys > first_row + 1)
        for_sums(s, [&](float& score, int m, int n, int i) {
          if (diagonal.left_of_element(m, n, i)) score = -INFINITY;
        });
      softmax.take<kKeys>(s, h.scale * kLog2E, out);
      weights = Weights<T, kM, kKeys / 8>(s);
    }
    wait_for_copies<0>();
    __syncthreads();  // the values are there, and all are done with the keys
    if (tile + 1 < tiles) k.template load<kKeys>(h, keys, (tile + 1) * kKeys, vectors);
    end_copy_group();
    if (seen) multiply_weights(out, weights, v);
  }
  wait_for_copies<0>();
  softmax.finish();
  store_rows<T, kColumns>(
      out, [&](int m, int i) { return 1 / softmax.sum[m][i / 2]; }, q.below(own), h,
      h.plain(p.out, place.head), first_row, vectors);
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = first_row + sum_row(m, 2 * half);
      if (lane_index() % 4 == 0 && position < h.context)
        p.lse[h.lse(place.head, position)] =
            h.scale * softmax.largest[m][half] + logf(softmax.sum[m][half]);
    }
}

}  // namespace

template <Precision kPrecision>
void tensor_attention_forward(CudaDevice& gpu, const AttentionForwardArgs& args) {
  using T = Element<kPrecision>;
  const Heads h = Heads::of(args);
  const ForwardOperands<T> operands(args);
  for_tile_width(h.head_dim, [&]<int kColumns>() {
    launch(gpu, "attention",
           {h.blocks(kQueries), kTileThreads,
            tile_bytes<T, kColumns>(kQueries + 2 * kKeysOf<kColumns>)},
           tensor_forward<T, kColumns>, h, operands, in_vectors<T>(h, operands.qkv, operands.out));
  });
}

template void tensor_attention_forward<Precision::kBf16>(CudaDevice&, const AttentionForwardArgs&);
template void tensor_attention_forward<Precision::kFp16>(CudaDevice&, const AttentionForwardArgs&);

}  // namespace motley::cuda
