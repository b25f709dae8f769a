#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_ops.h"
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

/// Puts into C what the product is added to: the bias, the old values, both, or nothing.
void prepare(const MatmulArgs& args, const Tile& tile) {
  if (args.bias.null()) return;
  const auto* bias = args.bias.as<const float>() + tile.column;
  for (int64_t i = tile.row; i < tile.row + tile.rows; ++i) {
    auto* c = args.c.as<float>() + i * args.n + tile.column;
    for (int64_t j = 0; j < tile.columns; ++j) c[j] = args.accumulate ? c[j] + bias[j] : bias[j];
  }
}

void multiply(const Blas& blas, const MatmulArgs& args, const Tile& tile) {
  const int64_t lda = args.transpose_a ? args.m : args.k;
  const int64_t ldb = args.transpose_b ? args.k : args.n;
  const auto* a = args.a.as<const float>() + tile.row * (args.transpose_a ? 1 : lda);
  const auto* b = args.b.as<const float>() + tile.column * (args.transpose_b ? ldb : 1);
  auto* c = args.c.as<float>() + tile.row * args.n + tile.column;
  prepare(args, tile);
  const bool add_to_c = args.accumulate || !args.bias.null();
  blas.sgemm(kCblasRowMajor, args.transpose_a ? kCblasTrans : kCblasNoTrans,
             args.transpose_b ? kCblasTrans : kCblasNoTrans, static_cast<int>(tile.rows),
             static_cast<int>(tile.columns), static_cast<int>(args.k), 1, a, static_cast<int>(lda),
             b, static_cast<int>(ldb), add_to_c ? 1.0f : 0.0f, c, static_cast<int>(args.n));
}

}  // namespace

// C is cut into tiles by its shape alone, one task each; every tile is one single-threaded GEMM.
void matmul(Device& device, const MatmulArgs& args) {
  const Blas& blas = static_cast<CpuDevice&>(device).blas();
  const Cut cut = cut_of(args.m, args.n);
  const auto task = [&](int64_t index, int) {
    const int64_t row = index / cut.column_parts * cut.rows;
    const int64_t column = index % cut.column_parts * cut.columns;
    multiply(
        blas, args,
        {row, column, std::min(cut.rows, args.m - row), std::min(cut.columns, args.n - column)});
  };
  device.parallel_for(cut.tiles(), std::ref(task));
}

}  // namespace motley::cpu
