#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace motley::cuda {
namespace {

struct Shape {
  int64_t rows, context, width, vocab, first_token;
};

/// Where the token lies in the table; negative when the table does not hold it.
__device__ int64_t held_row(const Shape& shape, int32_t token) {
  const int64_t row = token - shape.first_token;
  return row < shape.vocab ? row : -1;
}

template <class T>
__global__ void embed(Shape shape, const int32_t* tokens, const T* token_table,
                      const T* position_table, T* out) {
  const int64_t i = element_index();
  if (i >= shape.rows * shape.width) return;
  const int64_t row = i / shape.width, column = i % shape.width;
  const int64_t held = held_row(shape, tokens[row]);
  float sum = held < 0 ? 0.0f : wide(token_table[held * shape.width + column]);
  if (position_table != nullptr)
    sum += wide(position_table[row % shape.context * shape.width + column]);
  put(out + i, sum);
}

/// One thread for each column: rows may share a token, and are added in rising order.
template <class T>
__global__ void add_to_tokens(Shape shape, const int32_t* tokens, const T* d_out,
                              float* token_gradient) {
  const int64_t column = element_index();
  if (column >= shape.width) return;
  for (int64_t row = 0; row < shape.rows; ++row) {
    const int64_t held = held_row(shape, tokens[row]);
    if (held >= 0)
      token_gradient[held * shape.width + column] += wide(d_out[row * shape.width + column]);
  }
}

/// One thread for each element of the position table.
template <class T>
__global__ void add_to_positions(Shape shape, const T* d_out, float* position_gradient) {
  const int64_t i = element_index();
  if (i >= shape.context * shape.width) return;
  const int64_t position = i / shape.width, column = i % shape.width;
  float sum = position_gradient[i];
  for (int64_t row = position; row < shape.rows; row += shape.context)
    sum += wide(d_out[row * shape.width + column]);
  position_gradient[i] = sum;
}

}  // namespace

template <Precision kPrecision>
void embedding_forward(Device& device, const EmbeddingForwardArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  const int64_t count = args.rows * args.width;
  if (count == 0) return;
  launch(gpu, "embedding", {blocks_for(count)}, embed<T>,
         Shape{args.rows, args.context, args.width, args.vocab, args.first_token},
         args.tokens.as<const int32_t>(), args.token_table.as<const T>(),
         args.position_table.as<const T>(), args.out.as<T>());
}

template <Precision kPrecision>
void embedding_backward(Device& device, const EmbeddingBackwardArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  const Shape shape{args.rows, args.context, args.width, args.vocab, args.first_token};
  if (!args.accumulate) {
    const auto element = static_cast<int64_t>(sizeof(float));
    zero(device, {args.token_gradient, args.vocab * args.width * element});
    if (!args.position_gradient.null())
      zero(device, {args.position_gradient, args.context * args.width * element});
  }
  if (args.width == 0) return;
  launch(gpu, "token gradient", {blocks_for(args.width)}, add_to_tokens<T>, shape,
         args.tokens.as<const int32_t>(), args.d_out.as<const T>(),
         args.token_gradient.as<float>());
  if (args.position_gradient.null()) return;
  launch(gpu, "position gradient", {blocks_for(args.context * args.width)}, add_to_positions<T>,
         shape, args.d_out.as<const T>(), args.position_gradient.as<float>());
}

MOTLEY_IN_EACH_PRECISION(embedding_forward, EmbeddingForwardArgs);
MOTLEY_IN_EACH_PRECISION(embedding_backward, EmbeddingBackwardArgs);

}  // namespace motley::cuda
