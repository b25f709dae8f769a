#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/reference_ops.h"

namespace motley::reference {

void cross_entropy(Device&, const CrossEntropyArgs& args) {
  const double scale = args.scale.null() ? 1 : *args.scale.as<const double>();
  const auto* targets = args.targets.as<const int32_t>();
  for (int64_t row = 0; row < args.rows; ++row) {
    const auto* logits = args.logits.as<const double>() + row * args.row_stride();
    const double largest = *std::max_element(logits, logits + args.vocab);
    double sum = 0;
    for (int64_t i = 0; i < args.vocab; ++i) sum += std::exp(logits[i] - largest);
    const double lse = largest + std::log(sum);
    args.losses.as<double>()[row] = lse - logits[targets[row]];
    if (args.d_logits.null()) continue;
    auto* d_logits = args.d_logits.as<double>() + row * args.row_stride();
    for (int64_t i = 0; i < args.vocab; ++i)
      d_logits[i] = scale * (std::exp(logits[i] - lse) - (i == targets[row] ? 1 : 0));
    std::fill(d_logits + args.vocab, d_logits + args.row_stride(), 0.0);
  }
}

void cross_entropy_part(Device&, const CrossEntropyPartArgs& args) {
  const auto* targets = args.targets.as<const int32_t>();
  for (int64_t row = 0; row < args.rows; ++row) {
    const auto* logits = args.logits.as<const double>() + row * args.row_stride();
    const int64_t target = targets[row] - args.first_token;
    auto* stats = args.stats.as<double>() + row * 3;
    stats[0] = -std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < args.vocab; ++i) stats[0] = std::max(stats[0], logits[i]);
    stats[1] = 0;
    for (int64_t i = 0; i < args.vocab; ++i) stats[1] += std::exp(logits[i] - stats[0]);
    stats[2] = target >= 0 && target < args.vocab ? logits[target] : 0;
  }
}

void cross_entropy_combine(Device&, const CrossEntropyCombineArgs& args) {
  const double scale = args.scale.null() ? 1 : *args.scale.as<const double>();
  const auto* targets = args.targets.as<const int32_t>();
  for (int64_t row = 0; row < args.rows; ++row) {
    const auto* stats = args.stats.as<const double>() + row * 3;
    const auto stat = [&](int64_t part, int i) { return stats[part * args.rows * 3 + i]; };
    double largest = stat(0, 0), sum = 0, target_logit = 0;
    for (int64_t part = 1; part < args.parts; ++part) largest = std::max(largest, stat(part, 0));
    for (int64_t part = 0; part < args.parts; ++part) {
      sum += stat(part, 1) * std::exp(stat(part, 0) - largest);
      target_logit += stat(part, 2);
    }
    const double lse = largest + std::log(sum);
    args.losses.as<double>()[row] = lse - target_logit;
    if (args.d_logits.null()) continue;
    const auto* logits = args.logits.as<const double>() + row * args.row_stride();
    auto* d_logits = args.d_logits.as<double>() + row * args.row_stride();
    for (int64_t i = 0; i < args.vocab; ++i)
      d_logits[i] =
          scale * (std::exp(logits[i] - lse) - (args.first_token + i == targets[row] ? 1 : 0));
    std::fill(d_logits + args.vocab, d_logits + args.row_stride(), 0.0);
  }
}

}  // namespace motley::reference
