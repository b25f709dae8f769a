#pragma once
// How the backward pass of an embedding on a GPU divides its scratch, which programs reserve.

#include <algorithm>
#include <bit>
#include <cstdint>

namespace motley {

/// Rows are sorted by token, by one digit of it after the other, then summed in windows of the
/// sorted order. In 4-byte words.
struct EmbeddingWorkspace {
  static constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
  static constexpr int64_t kWindow = 16;

  /// `vocab`: tokens held.
  EmbeddingWorkspace(int64_t rows, int64_t width, int64_t vocab)
      : passes((std::bit_width(static_cast<uint64_t>(vocab)) + kDigitBits - 1) / kDigitBits),
        tile_rows(std::max<int64_t>(
            1024, rounded_up(rounded_up(rows, kMostTiles) / kMostTiles, kDigits))),
        tiles(rounded_up(rows, tile_rows) / tile_rows),
        windows(rounded_up(rows, kWindow) / kWindow) {
    const int64_t list = rounded_up(rows, 4);
    partial_sums = 4 * list;
    counts = partial_sums + rounded_up(windows * width, 4);
    words = counts + passes * tiles * kDigits;
    for (int i = 0; i < 2; ++i) {
      keys[i] = 2 * i * list;
      order[i] = keys[i] + list;
    }
  }

  int passes;         ///< digits of a token, or of `vocab`, which stands for those not held
  int64_t tile_rows;  ///< that one block sorts
  int64_t tiles;
  int64_t windows;
  // Where they begin, on multiples of 4 words as far as they are read in vectors:
  int64_t keys[2], order[2];  ///< [rows]; a pass sorts from one into the other
  int64_t partial_sums;       ///< [windows, width]
  int64_t counts;             ///< [passes, tiles, kDigits]
  int64_t words;              ///< in all

 private:
  static constexpr int64_t kMostTiles = 64;
  static constexpr int64_t rounded_up(int64_t x, int64_t unit) {
    return (x + unit - 1) / unit * unit;
  }
};

}  // namespace motley
