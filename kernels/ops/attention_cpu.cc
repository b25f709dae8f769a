#include <cmath>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/softmax.h"

namespace motley::cpu {
namespace {

struct Matrix {
  float* data;
  int64_t stride;

  Matrix below(int64_t rows) const { return {data + rows * stride, stride}; }
};

/// Extent of a product C[m,n] = alpha·A[m,k]·B[k,n] + beta·C.
struct Product {
  int64_t m, n, k;
  float alpha = 1, beta = 0;
};

enum class Form { kPlain = 0, kLeftTransposed = 1, kRightTransposed = 2 };

void multiply(const Blas& blas, Form form, const Product& p, Matrix a, Matrix b, Matrix c) {
  const auto as_int = [](int64_t x) { return static_cast<int>(x); };
  blas.sgemm(kCblasRowMajor, form == Form::kLeftTransposed ? kCblasTrans : kCblasNoTrans,
             form == Form::kRightTransposed ? kCblasTrans : kCblasNoTrans, as_int(p.m), as_int(p.n),
             as_int(p.k), p.alpha, a.data, as_int(a.stride), b.data, as_int(b.stride), p.beta,
             c.data, as_int(c.stride));
}

/// A head of a sample within the operands both directions have: rows are positions.
struct Head {
  const Blas& blas;
  int64_t context, head_dim;
  float scale;
  Matrix q, k, v, out;
  float* lse;

  template <class Args>
  Head(const Blas& library, const Args& args, int64_t index)
      : blas(library),
        context(args.context),
        head_dim(args.head_dim),
        scale(1 / std::sqrt(static_cast<float>(args.head_dim))),
        q(part(args, args.qkv, index, 0)),
        k(part(args, args.qkv, index, 1)),
        v(part(args, args.qkv, index, 2)),
        out(plain(args, args.out, index)),
        lse(args.lse.template as<float>() + index * args.context) {}

  /// Matrix number `which` (q, k, v) of head `index`, counted over samples and heads.
  template <class Args>
  static Matrix part(const Args& args, Address qkv, int64_t index, int64_t which) {
    const int64_t width = args.heads * args.head_dim;
    const int64_t sample = index / args.heads, head = index % args.heads;
    return {
        qkv.as<float>() + sample * args.context * 3 * width + which * width + head * args.head_dim,
        3 * width};
  }
  template <class Args>
  static Matrix plain(const Args& args, Address rows, int64_t index) {
    const int64_t width = args.heads * args.head_dim;
    const int64_t sample = index / args.heads, head = index % args.heads;
    return {rows.as<float>() + sample * args.context * width + head * args.head_dim, width};
  }
};

/// Rows [begin, begin + rows) of the score matrix; columns from `columns` on are masked for all of
/// them.
struct Block {
  int64_t begin, rows, columns;

  Block(int64_t first, int64_t context)
      : begin(first), rows(std::min(kAttentionBlock, context - first)), columns(first + rows) {}
  /// Columns that row i of the block sees.
  int64_t seen(int64_t i) const { return begin + i + 1; }
};

/// scores[rows, columns] = scale·q·kᵀ
void score(const Head& head, const Block& block, Matrix scores) {
  multiply(head.blas, Form::kRightTransposed,
           {block.rows, block.columns, head.head_dim, head.scale}, head.q.below(block.begin),
           head.k, scores);
}

/// Masks what row i does not see, so that whole vectors can be read; returns where they end.
int64_t mask(const Block& block, int64_t i, float* row) {
  const int64_t end = (block.seen(i) + kLanes - 1) / kLanes * kLanes;
  std::fill(row + block.seen(i), row + end, -__builtin_inff());
  if (end < block.columns) std::fill(row + end, row + block.columns, 0.0f);
  return end;
}

void forward(const Head& head, float* workspace) {
  const Matrix scores{workspace, attention_stride(head.context)};
  for (int64_t begin = 0; begin < head.context; begin += kAttentionBlock) {
    const Block block(begin, head.context);
    score(head, block, scores);
    for (int64_t i = 0; i < block.rows; ++i) {
      float* row = scores.below(i).data;
      head.lse[begin + i] = softmax(row, mask(block, i, row), row);
    }
    multiply(head.blas, Form::kPlain, {block.rows, head.head_dim, block.columns}, scores, head.v,
             head.out.below(begin));
  }
}

void recompute_probabilities(const Head& head, const Block& block, Matrix p) {
  score(head, block, p);
  for (int64_t i = 0; i < block.rows; ++i) {
    float* row = p.below(i).data;
    const float lse = head.lse[block.begin + i];
    for_lanes(mask(block, i, row), [&](int64_t j, int64_t lanes) {
      store(row + j, exp(load(row + j, lanes) - lse), lanes);
    });
  }
}

struct HeadGradient {
  Matrix d_out, d_q, d_k, d_v;
};

/// d_scores[i,:] = scale·p·(d_p - d_out·out), over d_p.
void score_gradient_row(const Head& head, const float* out, const float* d_out, const float* p,
                        float* d_p, int64_t columns) {
  const float weighted = sum_lanes(head.head_dim, [&](int64_t i, int64_t lanes) {
    return load(out + i, lanes) * load(d_out + i, lanes);
  });
  for (int64_t j = 0; j < columns; ++j) d_p[j] = head.scale * p[j] * (d_p[j] - weighted);
}

// With p = softmax(scale·q·kᵀ): d_v = pᵀ·d_out, d_p = d_out·vᵀ, d_s = p·(d_p - Σ p·d_p) where
// Σ p·d_p = d_out·out, d_q = scale·d_s·k, d_k = scale·d_sᵀ·q. The last block of rows sees all
// columns: it writes d_k and d_v, the others add to them.
void backward(const Head& head, const HeadGradient& gradient, float* workspace) {
  const Matrix p{workspace, attention_stride(head.context)};
  const Matrix d_p = p.below(std::min(kAttentionBlock, head.context));
  const int64_t blocks = (head.context + kAttentionBlock - 1) / kAttentionBlock;
  for (int64_t number = blocks - 1; number >= 0; --number) {
    const Block block(number * kAttentionBlock, head.context);
    const float beta = number == blocks - 1 ? 0.0f : 1.0f;
    const Matrix d_out = gradient.d_out.below(block.begin);
    recompute_probabilities(head, block, p);
    multiply(head.blas, Form::kLeftTransposed, {block.columns, head.head_dim, block.rows, 1, beta},
             p, d_out, gradient.d_v);
    multiply(head.blas, Form::kRightTransposed, {block.rows, block.columns, head.head_dim}, d_out,
             head.v, d_p);
    for (int64_t i = 0; i < block.rows; ++i)
      score_gradient_row(head, head.out.below(block.begin + i).data, d_out.below(i).data,
                         p.below(i).data, d_p.below(i).data, block.columns);
    multiply(head.blas, Form::kPlain, {block.rows, head.head_dim, block.columns}, d_p, head.k,
             gradient.d_q.below(block.begin));
    multiply(head.blas, Form::kLeftTransposed, {block.columns, head.head_dim, block.rows, 1, beta},
             d_p, head.q.below(block.begin), gradient.d_k);
  }
}

/// Calls run(head, its index, the thread's piece of the workspace) for every head of every sample.
template <class Args, class Run>
void for_each_head(Device& device, const Args& args, const Run& run) {
  const Blas& blas = static_cast<CpuDevice&>(device).blas();
  const int64_t piece =
      2 * std::min(kAttentionBlock, args.context) * attention_stride(args.context);
  const auto task = [&](int64_t index, int thread) {
    run(Head(blas, args, index), index, args.workspace.template as<float>() + thread * piece);
  };
  device.parallel_for(args.samples * args.heads, std::ref(task));
}

}  // namespace

void attention_forward(Device& device, const AttentionForwardArgs& args) {
  for_each_head(device, args,
                [](const Head& head, int64_t, float* workspace) { forward(head, workspace); });
}

void attention_backward(Device& device, const AttentionBackwardArgs& args) {
  for_each_head(device, args, [&](const Head& head, int64_t index, float* workspace) {
    const HeadGradient gradient{
        Head::plain(args, args.d_out, index), Head::part(args, args.d_qkv, index, 0),
        Head::part(args, args.d_qkv, index, 1), Head::part(args, args.d_qkv, index, 2)};
    backward(head, gradient, workspace);
  });
}

}  // namespace motley::cpu
