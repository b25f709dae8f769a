// Attention on tensor cores, backward, after FlashAttention-2 (Dao 2023), but with every gradient
// summed by one block in a fixed order, so that runs repeat bit for bit: a block for a tile of keys
// goes through the queries after it, one for a tile of queries through the keys before it. That
// computes scores and d_p twice, seven products instead of five. The other operand comes in tiles
// of 32 rows, each copied while the one before is computed with. Probabilities go from the
// accumulators of one product into the operands of the next without touching shared memory.
#include "kernels/ops/attention_tiles.cuh"

namespace motley::cuda {
namespace {

constexpr int kStreamed = 32;  // rows of a tile of what a block goes through

/// Blocks of 16 rows that a warp owns: as many as there are registers for.
template <int kColumns>
constexpr int kOwnedBlocks = kColumns <= 64 ? 2 : 1;
template <int kColumns>
constexpr int kOwned = kTileWarps * 16 * kOwnedBlocks<kColumns>;
/// Rows in shared memory: two tiles that are owned, two stages of two that come by.
template <int kColumns>
constexpr int kRowsHeld = 2 * kOwned<kColumns> + 4 * kStreamed;

/// Two matrices of a head and how a block goes through tiles of both, one copied ahead.
template <class T, int kColumns>
struct Stream {
  Tile<T, kColumns> stages;  ///< [2 stages][2 matrices][kStreamed rows]
  HeadRows<const T> first, second;
  bool vectors;

  __device__ Tile<T, kColumns> tile(int number, int matrix) const {
    return stages.below((number % 2 * 2 + matrix) * kStreamed);
  }
  __device__ void begin(const Heads& h, int number) const {
    tile(number, 0).template load<kStreamed>(h, first, number * kStreamed, vectors);
    tile(number, 1).template load<kStreamed>(h, second, number * kStreamed, vectors);
    end_copy_group();
  }
  /// Waits until tile `number` is there and begins to copy the next one, where there is one before
  /// `end`; called by all threads of the block.
  __device__ void advance(const Heads& h, int number, int end) const {
    wait_for_copies<0>();
    __syncthreads();  // of all threads; and all are done with the tile before
    if (number + 1 < end) begin(h, number + 1);
  }
};

/// Operands of products that the warp owns rows of.
template <class T, int kColumns>
struct Owned {
  Tile<T, kColumns> tile;

  __device__ void operator()(unsigned (&a)[4], int m, int k) const { tile.left(a, m * 16, k); }
};

/// d_k = scale·d_sᵀ·q and d_v = pᵀ·d_out: a row of a product is a key, a column a query.
template <class T, int kColumns>
__global__ __launch_bounds__(kTileThreads) void tensor_key_gradient(Heads h, BackwardOperands<T> b,
                                                                    bool vectors) {
  constexpr int kM = kOwnedBlocks<kColumns>, kKeys = kOwned<kColumns>;
  using Rows = Tile<T, kColumns>;
  const Rows k{dynamic_shared<T>()}, v = k.below(kKeys);
  const TilePlace place(h, kKeys, TilePlace::Longest::kFirstTile);
  k.template load<kKeys>(h, h.part(b.qkv, place.head, 1), place.first, vectors);
  v.template load<kKeys>(h, h.part(b.qkv, place.head, 2), place.first, vectors);
  const Stream<T, kColumns> queries{v.below(kKeys), h.part(b.qkv, place.head, 0),
                                    h.plain(b.d_out, place.head), vectors};
  const int tiles = h.tiles(kStreamed);
  queries.begin(h, place.first / kStreamed);

  const int own = warp_index() * kM * 16, first_row = place.first + own;
  const Owned<T, kColumns> keys{k.below(own)}, values{v.below(own)};
  Sums<kM, kColumns / 8> d_k{}, d_v{};
#pragma unroll 1
  for (int tile = place.first / kStreamed; tile < tiles; ++tile) {
    queries.advance(h, tile, tiles);
    if (tile * kStreamed + kStreamed <= first_row) continue;  // all before the warp's keys
    const RowStatistics* of_query =
        h.statistics(b.statistics, place.head, tile * kStreamed + sum_column(0, 0));
    Sums<kM, kStreamed / 8> p{}, d_s{};
    multiply_transposed<T>(p, keys, queries.tile(tile, 0));
    const Diagonal diagonal(first_row, tile * kStreamed);
    const bool masked = tile * kStreamed < first_row + kM * 16 - 1;
    for_sums(p, [&](float& score, int m, int n, int i) {
      score = fast_exp2(score * (h.scale * kLog2E) - of_query[n * 8 + i % 2].lse);
      if (masked && diagonal.right_of_element(m, n, i)) score = 0;
    });
    multiply_weights(d_v, Weights<T, kM, kStreamed / 8>(p), queries.tile(tile, 1));
    multiply_transposed<T>(d_s, values, queries.tile(tile, 1));
    for_sums(d_s, [&](float& d_p, int m, int n, int i) {
      d_p = p[m][n][i] * (d_p - of_query[n * 8 + i % 2].weighted);
    });
    multiply_weights(d_k, Weights<T, kM, kStreamed / 8>(d_s), queries.tile(tile, 0));
  }
  store_rows<T, kColumns>(
      d_k, [&](int, int) { return h.scale; }, keys.tile, h, h.part(b.d_qkv, place.head, 1),
      first_row, vectors);
  store_rows<T, kColumns>(
      d_v, [&](int, int) { return 1.0f; }, values.tile, h, h.part(b.d_qkv, place.head, 2),
      first_row, vectors);
}

/// d_q = scale·d_s·k: a row of a product is a query, a column a key.
template <class T, int kColumns>
__global__ __launch_bounds__(kTileThreads) void tensor_query_gradient(Heads h,
                                                                      BackwardOperands<T> b,
                                                                      bool vectors) {
  constexpr int kM = kOwnedBlocks<kColumns>, kQueries = kOwned<kColumns>;
  using Rows = Tile<T, kColumns>;
  const Rows q{dynamic_shared<T>()}, d_out = q.below(kQueries);
  const TilePlace place(h, kQueries, TilePlace::Longest::kLastTile);
  q.template load<kQueries>(h, h.part(b.qkv, place.head, 0), place.first, vectors);
  d_out.template load<kQueries>(h, h.plain(b.d_out, place.head), place.first, vectors);
  const Stream<T, kColumns> keys{d_out.below(kQueries), h.part(b.qkv, place.head, 1),
                                 h.part(b.qkv, place.head, 2), vectors};
  const int before = (place.first + kQueries) / kStreamed;
  const int tiles = before < h.tiles(kStreamed) ? before : h.tiles(kStreamed);
  keys.begin(h, 0);

  const int own = warp_index() * kM * 16, first_row = place.first + own;
  const Owned<T, kColumns> queries{q.below(own)}, gradients{d_out.below(own)};
  RowStatistics of_row[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = first_row + sum_row(m, 2 * half);
      of_row[m][half] = position < h.context ? *h.statistics(b.statistics, place.head, position)
                                             : RowStatistics{INFINITY, 0};
    }
  Sums<kM, kColumns / 8> d_q{};
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    keys.advance(h, tile, tiles);
    if (tile * kStreamed >= first_row + kM * 16) continue;  // all after the warp's queries
    Sums<kM, kStreamed / 8> p{}, d_s{};
    multiply_transposed<T>(p, queries, keys.tile(tile, 0));
    multiply_transposed<T>(d_s, gradients, keys.tile(tile, 1));
    const Diagonal diagonal(first_row, tile * kStreamed);
    const bool masked = tile * kStreamed + kStreamed > first_row + 1;
    for_sums(p, [&](float& score, int m, int n, int i) {
      score = fast_exp2(score * (h.scale * kLog2E) - of_row[m][i / 2].lse);
      if (masked && diagonal.left_of_element(m, n, i)) score = 0;
      d_s[m][n][i] = score * (d_s[m][n][i] - of_row[m][i / 2].weighted);
    });
    multiply_weights(d_q, Weights<T, kM, kStreamed / 8>(d_s), keys.tile(tile, 0));
  }
  store_rows<T, kColumns>(
      d_q, [&](int, int) { return h.scale; }, queries.tile, h, h.part(b.d_qkv, place.head, 0),
      first_row, vectors);
}

/// Eight elements from `at` on; zero from `present` on, as only the last ones of a row that is not
/// whole vectors can be.
template <class T>
__device__ void load_eight(float (&values)[8], const T* at, int present, bool vectors) {
  if (!vectors) {
    for (int e = 0; e < 8; ++e) values[e] = e < present ? wide(at[e]) : 0.0f;
    return;
  }
  const uint4 bits = *reinterpret_cast<const uint4*>(at);
  T elements[8];
  memcpy(elements, &bits, sizeof(elements));
#pragma unroll
  for (int e = 0; e < 8; ++e) values[e] = wide(elements[e]);
}

constexpr int kRowThreads = 8;  // to a row of the statistics

/// RowStatistics of every position; positions beyond the context become those without weight.
template <class T>
__global__ void row_statistics(Heads h, BackwardOperands<T> b, bool vectors) {
  const int64_t row = element_index() / kRowThreads;
  const bool exists = row < h.count() * h.padded_context();
  const int head = static_cast<int>(row / h.padded_context());
  const int position = static_cast<int>(row % h.padded_context());
  const bool inside = exists && position < h.context;
  const int thread = static_cast<int>(threadIdx.x) % kRowThreads;
  float sum = 0;
  for (int i = thread * 8; inside && i < h.head_dim; i += kRowThreads * 8) {
    float out[8], d_out[8];
    load_eight(out, h.plain(b.out, head).at(position) + i, h.head_dim - i, vectors);
    load_eight(d_out, h.plain(b.d_out, head).at(position) + i, h.head_dim - i, vectors);
#pragma unroll
    for (int e = 0; e < 8; ++e) sum += out[e] * d_out[e];
  }
#pragma unroll
  for (int offset = kRowThreads / 2; offset > 0; offset /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (exists && thread == 0)
    b.statistics[row] = inside ? RowStatistics{b.lse[h.lse(head, position)] * kLog2E, sum}
                               : RowStatistics{INFINITY, 0};
}

}  // namespace

template <Precision kPrecision>
void tensor_attention_backward(CudaDevice& gpu, const AttentionBackwardArgs& args) {
  using T = Element<kPrecision>;
  const Heads h = Heads::of(args);
  const BackwardOperands<T> operands(args);
  const bool vectors = in_vectors<T>(h, operands.qkv, operands.out, operands.d_out, operands.d_qkv);
  launch(gpu, "attention statistics", {blocks_for(h.count() * h.padded_context() * kRowThreads)},
         row_statistics<T>, h, operands, vectors);
  for_tile_width(h.head_dim, [&]<int kColumns>() {
    const LaunchShape shape{h.blocks(kOwned<kColumns>), kTileThreads,
                            tile_bytes<T, kColumns>(kRowsHeld<kColumns>)};
    launch(gpu, "attention key and value gradient", shape, tensor_key_gradient<T, kColumns>, h,
           operands, vectors);
    launch(gpu, "attention query gradient", shape, tensor_query_gradient<T, kColumns>, h, operands,
           vectors);
  });
}

template void tensor_attention_backward<Precision::kBf16>(CudaDevice&,
                                                          const AttentionBackwardArgs&);
template void tensor_attention_backward<Precision::kFp16>(CudaDevice&,
                                                          const AttentionBackwardArgs&);

}  // namespace motley::cuda
