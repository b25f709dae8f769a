#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"

namespace motley::cpu {
namespace {

/// Columns of both tables that one task of the backward pass owns.
constexpr int64_t kTaskColumns = 64;

/// The row of `table` [rows, width]; null for a row outside it or without a table.
template <class T>
T* row_of(T* table, int64_t row, int64_t rows, int64_t width) {
  return table != nullptr && row >= 0 && row < rows ? table + row * width : nullptr;
}

/// out = token + position, where either may be null.
void embed(const float* token, const float* position, int64_t width, float* out) {
  const size_t bytes = static_cast<size_t>(width) * sizeof(float);
  if (token != nullptr && position != nullptr)
    for (int64_t i = 0; i < width; ++i) out[i] = token[i] + position[i];
  else if (token != nullptr || position != nullptr)
    std::memcpy(out, token != nullptr ? token : position, bytes);
  else
    std::memset(out, 0, bytes);
}

void add_columns(const float* row, int64_t begin, int64_t end, float* sums) {
  for (int64_t i = begin; sums != nullptr && i < end; ++i) sums[i] += row[i];
}

}  // namespace

void embedding_forward(Device& device, const EmbeddingForwardArgs& args) {
  const auto* tokens = args.tokens.as<const int32_t>();
  const auto* token_table = args.token_table.as<const float>();        // [vocab, width]
  const auto* position_table = args.position_table.as<const float>();  // [context, width]
  parallel_rows(device, args.rows, args.width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      embed(row_of(token_table, tokens[row] - args.first_token, args.vocab, args.width),
            row_of(position_table, row % args.context, args.context, args.width), args.width,
            args.out.as<float>() + row * args.width);
  });
}

// Rows may share a token, so tasks own columns.
void embedding_backward(Device& device, const EmbeddingBackwardArgs& args) {
  const auto* tokens = args.tokens.as<const int32_t>();
  auto* token_gradient = args.token_gradient.as<float>();        // [vocab, width]
  auto* position_gradient = args.position_gradient.as<float>();  // [context, width]
  if (!args.accumulate) {
    const int64_t row_bytes = args.width * int64_t{sizeof(float)};
    zero(device, {args.token_gradient, args.vocab * row_bytes});
    if (position_gradient != nullptr)
      zero(device, {args.position_gradient, args.context * row_bytes});
  }
  parallel_ranges(device, args.width, kTaskColumns, [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < args.rows; ++row) {
      const auto* d_out = args.d_out.as<const float>() + row * args.width;
      const int64_t token = tokens[row] - args.first_token;
      add_columns(d_out, begin, end, row_of(token_gradient, token, args.vocab, args.width));
      add_columns(d_out, begin, end,
                  row_of(position_gradient, row % args.context, args.context, args.width));
    }
  });
}

}  // namespace motley::cpu
