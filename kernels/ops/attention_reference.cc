#include <algorithm>
#include <cmath>

#include "kernels/reference/reference_ops.h"

namespace motley::reference {
namespace {

/// One head of one sample: row t of q, k, v, out and their gradients.
struct Head {
  int64_t sample, head, context, heads, head_dim;

  int64_t width() const { return heads * head_dim; }
  /// part 0, 1, 2: q, k, v.
  template <class T>
  T* part(T* qkv, int64_t t, int which) const {
    return qkv + (sample * context + t) * 3 * width() + which * width() + head * head_dim;
  }
  template <class T>
  T* row(T* out, int64_t t) const {
    return out + (sample * context + t) * width() + head * head_dim;
  }
  template <class T>
  T& at(T* lse, int64_t t) const {
    return lse[(sample * heads + head) * context + t];
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(head_dim)); }
  double dot(const double* a, const double* b) const {
    double sum = 0;
    for (int64_t i = 0; i < head_dim; ++i) sum += a[i] * b[i];
    return sum;
  }
};

void forward(const AttentionForwardArgs& args, const Head& head) {
  const auto* qkv = args.qkv.as<const double>();
  auto* scores = args.workspace.as<double>();  // [context]
  for (int64_t t = 0; t < head.context; ++t) {
    for (int64_t s = 0; s <= t; ++s)
      scores[s] = head.scale() * head.dot(head.part(qkv, t, 0), head.part(qkv, s, 1));
    const double largest = *std::max_element(scores, scores + t + 1);
    double sum = 0;
    for (int64_t s = 0; s <= t; ++s) sum += std::exp(scores[s] - largest);
    const double lse = largest + std::log(sum);
    double* out = head.row(args.out.as<double>(), t);
    std::fill_n(out, head.head_dim, 0.0);
    for (int64_t s = 0; s <= t; ++s)
      for (int64_t i = 0; i < head.head_dim; ++i)
        out[i] += std::exp(scores[s] - lse) * head.part(qkv, s, 2)[i];
    head.at(args.lse.as<double>(), t) = lse;
  }
}

// p = softmax(scale·q·k): d_v = pᵀ·d_out, d_p = d_out·vᵀ, d_s = p·(d_p - Σ p·d_p), d_q =
// scale·d_s·k, d_k = scale·d_sᵀ·q.
void backward(const AttentionBackwardArgs& args, const Head& head) {
  const auto* qkv = args.qkv.as<const double>();
  auto* d_qkv = args.d_qkv.as<double>();
  auto* p = args.workspace.as<double>();  // [context]
  for (int64_t t = 0; t < head.context; ++t)
    for (int which = 0; which < 3; ++which)
      std::fill_n(head.part(d_qkv, t, which), head.head_dim, 0.0);
  for (int64_t t = 0; t < head.context; ++t) {
    const double* q = head.part(qkv, t, 0);
    const double* d_out = head.row(args.d_out.as<const double>(), t);
    double weighted = 0;
    for (int64_t s = 0; s <= t; ++s) {
      p[s] = std::exp(head.scale() * head.dot(q, head.part(qkv, s, 1)) -
                      head.at(args.lse.as<const double>(), t));
      weighted += p[s] * head.dot(d_out, head.part(qkv, s, 2));
    }
    for (int64_t s = 0; s <= t; ++s) {
      const double* k = head.part(qkv, s, 1);
      const double d_score = p[s] * (head.dot(d_out, head.part(qkv, s, 2)) - weighted);
      for (int64_t i = 0; i < head.head_dim; ++i) {
        head.part(d_qkv, t, 0)[i] += head.scale() * d_score * k[i];
        head.part(d_qkv, s, 1)[i] += head.scale() * d_score * q[i];
        head.part(d_qkv, s, 2)[i] += p[s] * d_out[i];
      }
    }
  }
}

template <class Args, class Run>
void for_each_head(const Args& args, Run run) {
  for (int64_t sample = 0; sample < args.samples; ++sample)
    for (int64_t head = 0; head < args.heads; ++head)
      run(args, Head{sample, head, args.context, args.heads, args.head_dim});
}

}  // namespace

void attention_forward(Device&, const AttentionForwardArgs& args) { for_each_head(args, forward); }
void attention_backward(Device&, const AttentionBackwardArgs& args) {
  for_each_head(args, backward);
}

}  // namespace motley::reference
