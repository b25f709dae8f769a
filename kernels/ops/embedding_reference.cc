#include <algorithm>

#include "kernels/reference/reference_ops.h"

namespace motley::reference {

void embedding_forward(Device&, const EmbeddingForwardArgs& args) {
  const auto* tokens = args.tokens.as<const int32_t>();
  const auto* token_table = args.token_table.as<const double>();        // [vocab, width]
  const auto* position_table = args.position_table.as<const double>();  // [context, width]
  auto* out = args.out.as<double>();                                    // [rows, width]
  for (int64_t row = 0; row < args.rows; ++row) {
    const int64_t token = tokens[row] - args.first_token;
    for (int64_t i = 0; i < args.width; ++i) {
      double sum = 0;
      if (token >= 0 && token < args.vocab) sum += token_table[token * args.width + i];
      if (position_table != nullptr) sum += position_table[row % args.context * args.width + i];
      out[row * args.width + i] = sum;
    }
  }
}

void embedding_backward(Device&, const EmbeddingBackwardArgs& args) {
  const auto* tokens = args.tokens.as<const int32_t>();
  const auto* d_out = args.d_out.as<const double>();              // [rows, width]
  auto* token_gradient = args.token_gradient.as<double>();        // [vocab, width]
  auto* position_gradient = args.position_gradient.as<double>();  // [context, width]
  if (!args.accumulate) {
    std::fill_n(token_gradient, args.vocab * args.width, 0.0);
    if (position_gradient != nullptr)
      std::fill_n(position_gradient, args.context * args.width, 0.0);
  }
  for (int64_t row = 0; row < args.rows; ++row) {
    const int64_t token = tokens[row] - args.first_token;
    for (int64_t i = 0; i < args.width; ++i) {
      const double gradient = d_out[row * args.width + i];
      if (token >= 0 && token < args.vocab) token_gradient[token * args.width + i] += gradient;
      if (position_gradient != nullptr)
        position_gradient[row % args.context * args.width + i] += gradient;
    }
  }
}

}  // namespace motley::reference
