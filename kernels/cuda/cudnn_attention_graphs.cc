#include "kernels/cuda/cudnn_attention_graphs.h"

#include <algorithm>

namespace motley::cudnn {
namespace {

/// The tensors of one graph.
class Heads {
 public:
  Heads(Graph& graph, const AttentionShape& shape) : graph_(graph), s_(shape) {}

  /// Of q, k, v or the gradient of one.
  Tensor part(int64_t id) { return rows(id, 3 * s_.heads_in_row * s_.head_dim); }
  /// Its rows are columns of k or v.
  Tensor transposed_part(int64_t id) {
    const int64_t row = 3 * s_.heads_in_row * s_.head_dim;
    return graph_.memory(id, s_.type, {s_.samples, s_.heads, s_.head_dim, s_.context},
                         {s_.context * row, s_.head_dim, 1, row});
  }
  /// Of out or its gradient.
  Tensor plain(int64_t id) { return rows(id, s_.heads_in_row * s_.head_dim); }
  /// A float32 for each row of scores.
  Tensor statistic(int64_t id) {
    return graph_.memory(id, DataType::kFloat, {s_.samples, s_.heads, s_.context, 1},
                         {s_.heads_in_row * s_.context, s_.context, 1, 1});
  }

 private:
  Tensor rows(int64_t id, int64_t stride) {
    return graph_.memory(id, s_.type, {s_.samples, s_.heads, s_.context, s_.head_dim},
                         {s_.context * stride, s_.head_dim, stride, 1});
  }

  Graph& graph_;
  const AttentionShape& s_;
};

/// Scores of later positions become minus infinity.
Tensor mask(Graph& graph, const Tensor& scores) {
  const Tensor row = graph.index(scores, 2), column = graph.index(scores, 3);
  const Tensor seen = graph.pointwise(PointwiseMode::kAtLeast, {row, column, {}});
  return graph.pointwise(PointwiseMode::kSelect, {scores, graph.scalar(kMinusInfinity), seen});
}

int64_t largest_divisor(int64_t number, int64_t most) {
  int64_t divisor = std::min(number, most);
  while (divisor > 0 && number % divisor != 0) --divisor;
  return divisor;
}

}  // namespace

Descriptor attention_forward_graph(Descriptors& descriptors, const AttentionShape& shape,
                                   Handle handle) {
  Graph graph(descriptors);
  Heads heads(graph, shape);
  Tensor scores = graph.product(heads.part(kQ), heads.transposed_part(kK));
  scores = graph.pointwise(PointwiseMode::kMultiply, {scores, graph.scalar(kScale), {}});
  scores = mask(graph, scores);
  const Tensor most = graph.reduce(Reduction::kMax, scores);
  const Tensor difference = graph.pointwise(PointwiseMode::kSubtract, {scores, most, {}});
  const Tensor power = graph.pointwise(PointwiseMode::kExp, {difference, {}, {}});
  const Tensor sum = graph.reduce(Reduction::kSum, power);
  const Tensor log = graph.pointwise(PointwiseMode::kLog, {sum, {}, {}});
  graph.pointwise(PointwiseMode::kAdd, {most, log, {}}, heads.statistic(kLse));
  const Tensor probabilities = graph.inside(shape.type, power.extents);
  graph.pointwise(PointwiseMode::kDivide, {power, sum, {}}, probabilities);
  graph.product(probabilities, heads.part(kV), heads.plain(kOut));
  return graph.finish(handle);
}

Descriptor attention_backward_graph(Descriptors& descriptors, const AttentionShape& shape,
                                    Handle handle) {
  Graph graph(descriptors);
  Heads heads(graph, shape);
  const Tensor q = heads.part(kQ), k_transposed = heads.transposed_part(kK);
  const Tensor d_out = heads.plain(kDOut), scale = graph.scalar(kScale);
  const Tensor product = graph.pointwise(PointwiseMode::kMultiply, {d_out, heads.plain(kOut), {}});
  const Tensor weighted = heads.statistic(kWeighted);
  // Where dropout would scale; without this product the engines want three times the workspace.
  const Tensor row_sum = graph.reduce(Reduction::kSum, product);
  graph.pointwise(PointwiseMode::kMultiply, {row_sum, graph.scalar(kOne), {}}, weighted);

  Tensor scores = graph.product(q, k_transposed);
  scores = graph.pointwise(PointwiseMode::kMultiply, {scores, scale, {}});
  scores = graph.pointwise(PointwiseMode::kSubtract, {scores, heads.statistic(kLse), {}});
  scores = mask(graph, scores);
  const Tensor probabilities = graph.pointwise(PointwiseMode::kExp, {scores, {}, {}});
  graph.product(graph.transpose(probabilities, shape.type), d_out, heads.part(kDV));

  Tensor d_scores = graph.product(d_out, heads.transposed_part(kV));
  d_scores = graph.pointwise(PointwiseMode::kSubtract, {d_scores, weighted, {}});
  d_scores = graph.pointwise(PointwiseMode::kMultiply, {d_scores, probabilities, {}});
  d_scores = graph.pointwise(PointwiseMode::kMultiply, {d_scores, scale, {}});
  graph.product(graph.transpose(d_scores, shape.type), q, heads.part(kDK));
  graph.product(d_scores, graph.transpose(k_transposed, shape.type), heads.part(kDQ));
  return graph.finish(handle);
}

AttentionShape attention_slice(const AttentionShape& shape, int64_t most_workspace) {
  constexpr int64_t kBlock = 128, kElement = 2;  // what engines pad contexts to; bytes
  constexpr int64_t kBesides = 4096;             // bytes that engines want for other things
  const int64_t rows = (shape.context + kBlock - 1) / kBlock * kBlock;
  const int64_t heads = (most_workspace - kBesides) / (rows * rows * kElement);
  AttentionShape slice = shape;
  if (heads >= shape.heads) {
    slice.samples = largest_divisor(shape.samples, heads / shape.heads);
  } else {
    slice.heads = largest_divisor(shape.heads, heads);
    slice.samples = slice.heads > 0 ? 1 : 0;
  }
  return slice;
}

}  // namespace motley::cudnn
