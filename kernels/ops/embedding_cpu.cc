#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"

namespace motley::cpu {
namespace {

/// Columns of both tables that one task of the backward pass owns.
constexpr int64_t kTaskColumns = 64;

}  // namespace

void embedding_forward(Device& device, const EmbeddingForwardArgs& args) {
  const auto* tokens = args.tokens.as<const int32_t>();
  parallel_rows(device, args.rows, args.width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto* token = args.token_table.as<const float>() + tokens[row] * args.width;
      const auto* position =
          args.position_table.as<const float>() + row % args.context * args.width;
      auto* out = args.out.as<float>() + row * args.width;
      for (int64_t i = 0; i < args.width; ++i) out[i] = token[i] + position[i];
    }
  });
}

// Rows may share a token, so tasks own columns.
void embedding_backward(Device& device, const EmbeddingBackwardArgs& args) {
  const auto* tokens = args.tokens.as<const int32_t>();
  auto* token_gradient = args.token_gradient.as<float>();        // [vocab, width]
  auto* position_gradient = args.position_gradient.as<float>();  // [context, width]
  if (!args.accumulate) {
    zero(device, {args.token_gradient, args.vocab * args.width * int64_t{sizeof(float)}});
    zero(device, {args.position_gradient, args.context * args.width * int64_t{sizeof(float)}});
  }
  parallel_ranges(device, args.width, kTaskColumns, [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < args.rows; ++row) {
      const auto* d_out = args.d_out.as<const float>() + row * args.width;
      auto* token = token_gradient + tokens[row] * args.width;
      auto* position = position_gradient + row % args.context * args.width;
      for (int64_t i = begin; i < end; ++i) {
        token[i] += d_out[i];
        position[i] += d_out[i];
      }
    }
  });
}

}  // namespace motley::cpu
