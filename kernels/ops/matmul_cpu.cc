#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/gelu.h"
#include "kernels/cpu/parallel.h"

namespace motley::cpu {
namespace {

/// The cut of C: `row_parts` times `column_parts` tiles of about the same size. A large tile
/// repacks less, a small one leaves work for more threads.
struct Cut {
  int64_t rows, columns;  ///< of a tile; the last ones are smaller
  int64_t row_parts, column_parts;

  int64_t tiles() const { return row_parts * column_parts; }
};

Cut cut_into(int64_t m, int64_t n, int64_t edge) {
  constexpr int64_t kMultiple = 16;  // of the widest kernels
  const auto part = [&](int64_t extent) {
    const int64_t even = ceil_div(extent, ceil_div(extent, edge));
    return ceil_div(even, kMultiple) * kMultiple;
  };
  const int64_t rows = part(m), columns = part(n);
  return {rows, columns, ceil_div(m, rows), ceil_div(n, columns)};
}

Cut cut_of(int64_t m, int64_t n) {
  constexpr int64_t kEdges[] = {768, 512, 384};
  constexpr int64_t kSmallestEdge = 256;
  constexpr int64_t kEnoughTiles = 4;
  for (const int64_t edge : kEdges) {
    const Cut cut = cut_into(m, n, edge);
    if (cut.tiles() >= kEnoughTiles) return cut;
  }
  return cut_into(m, n, kSmallestEdge);
}

struct Tile {
  int64_t row, column, rows, columns;
};

/// Where the sums of a tile go: `ld` elements lie between its rows.
struct Sums {
  float* first;
  int64_t ld;
};

Sums sums_of(const MatmulArgs& args, const Tile& tile) {
  const bool aside = args.epilogue == Epilogue::kGelu;
  const int64_t ld = aside ? args.n : args.ldc();
  return {(aside ? args.pre_activation : args.c).as<float>() + tile.row * ld + tile.column, ld};
}

/// Puts there what the product is added to: the bias, the old values, both, or nothing.
void prepare(const MatmulArgs& args, const Tile& tile, const Sums& sums) {
  if (args.bias.null()) return;
  const auto* bias = args.bias.as<const float>() + tile.column;
  for (int64_t i = 0; i < tile.rows; ++i) {
    float* c = sums.first + i * sums.ld;
    for (int64_t j = 0; j < tile.columns; ++j) c[j] = args.accumulate ? c[j] + bias[j] : bias[j];
  }
}

void multiply(const Blas& blas, const MatmulArgs& args, const Tile& tile) {
  const int64_t lda = args.lda(), ldb = args.ldb();
  const auto* a = args.a.as<const float>() + tile.row * (args.transpose_a ? 1 : lda);
  const auto* b = args.b.as<const float>() + tile.column * (args.transpose_b ? ldb : 1);
  const Sums sums = sums_of(args, tile);
  prepare(args, tile, sums);
  const bool add_to_c = args.accumulate || !args.bias.null();
  blas.sgemm(kCblasRowMajor, args.transpose_a ? kCblasTrans : kCblasNoTrans,
             args.transpose_b ? kCblasTrans : kCblasNoTrans, static_cast<int>(tile.rows),
             static_cast<int>(tile.columns), static_cast<int>(args.k), 1, a, static_cast<int>(lda),
             b, static_cast<int>(ldb), add_to_c ? 1.0f : 0.0f, sums.first,
             static_cast<int>(sums.ld));
}

/// While the tile is in the cache.
void apply_epilogue(const MatmulArgs& args, const Tile& tile) {
  if (args.epilogue == Epilogue::kNone) return;
  for (int64_t row = tile.row; row < tile.row + tile.rows; ++row) {
    const float* x = args.pre_activation.as<const float>() + row * args.n + tile.column;
    float* c = args.c.as<float>() + row * args.ldc() + tile.column;
    for_lanes(tile.columns, [&](int64_t i, int64_t lanes) {
      const Float8 at = load(x + i, lanes);
      store(c + i,
            args.epilogue == Epilogue::kGelu ? gelu(at) : load(c + i, lanes) * gelu_slope(at),
            lanes);
    });
  }
}

}  // namespace

// C is cut into tiles by its shape alone, one task each; every tile is one single-threaded GEMM.
void matmul(Device& device, const MatmulArgs& args) {
  const Blas& blas = static_cast<CpuDevice&>(device).blas();
  const Cut cut = cut_of(args.m, args.n);
  const auto task = [&](int64_t index, int) {
    const int64_t row = index / cut.column_parts * cut.rows;
    const int64_t column = index % cut.column_parts * cut.columns;
    const Tile tile{row, column, std::min(cut.rows, args.m - row),
                    std::min(cut.columns, args.n - column)};
    multiply(blas, args, tile);
    apply_epilogue(args, tile);
  };
  device.parallel_for(cut.tiles(), std::ref(task));
}

}  // namespace motley::cpu
