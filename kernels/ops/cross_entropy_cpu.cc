#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/softmax.h"

namespace motley::cpu {
namespace {

/// The parts of one row, joined.
struct RowStats {
  float largest = -__builtin_inff(), sum = 0, target_logit = 0;
};

/// `stats` are those of the row in the first part; `stride` lies between parts.
RowStats join(const float* stats, int64_t parts, int64_t stride) {
  RowStats row;
  for (int64_t part = 0; part < parts; ++part)
    row.largest = std::max(row.largest, stats[part * stride]);
  for (int64_t part = 0; part < parts; ++part) {
    const float* of_part = stats + part * stride;
    row.sum += of_part[1] * exp(broadcast(of_part[0] - row.largest))[0];
    row.target_logit += of_part[2];
  }
  return row;
}

/// The gradient of a row, which is scale times what it holds less 1 where the target is, and 0 up
/// to the next row.
void finish_gradient(float* row, int64_t vocab, int64_t stride, int64_t target, Address scale) {
  std::fill(row + vocab, row + stride, 0.0f);
  if (target >= 0 && target < vocab) row[target] -= 1;
  if (scale.null()) return;
  const auto factor = static_cast<float>(*scale.as<const double>());
  for (int64_t i = 0; i < vocab; ++i) row[i] *= factor;
}

void softmax_of_part(const float* logits, const RowStats& row, int64_t vocab, float* out) {
  const float scale = 1 / row.sum;
  for_lanes(vocab, [&](int64_t i, int64_t lanes) {
    store(out + i, exp(load(logits + i, lanes) - row.largest) * scale, lanes);
  });
}

}  // namespace

void cross_entropy(Device& device, const CrossEntropyArgs& args) {
  const auto* targets = args.targets.as<const int32_t>();
  parallel_rows(device, args.rows, args.vocab, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto* logits = args.logits.as<const float>() + row * args.row_stride();
      const int32_t target = targets[row];
      const float target_logit = logits[target];  // d_logits may be logits
      auto& loss = args.losses.as<float>()[row];
      if (args.d_logits.null()) {
        loss = log_sum_exp(logits, args.vocab) - target_logit;
      } else {
        auto* d_logits = args.d_logits.as<float>() + row * args.row_stride();
        loss = softmax(logits, args.vocab, d_logits) - target_logit;
        finish_gradient(d_logits, args.vocab, args.row_stride(), target, args.scale);
      }
    }
  });
}

void cross_entropy_part(Device& device, const CrossEntropyPartArgs& args) {
  const auto* targets = args.targets.as<const int32_t>();
  parallel_rows(device, args.rows, args.vocab, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto* logits = args.logits.as<const float>() + row * args.row_stride();
      const int64_t target = targets[row] - args.first_token;
      auto* stats = args.stats.as<float>() + row * 3;
      stats[0] = largest_of(logits, args.vocab);
      stats[1] = sum_of_exp(logits, args.vocab, stats[0]);
      stats[2] = target >= 0 && target < args.vocab ? logits[target] : 0;
    }
  });
}

void cross_entropy_combine(Device& device, const CrossEntropyCombineArgs& args) {
  const auto* targets = args.targets.as<const int32_t>();
  parallel_rows(device, args.rows, args.vocab, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const RowStats joined =
          join(args.stats.as<const float>() + row * 3, args.parts, args.rows * 3);
      args.losses.as<float>()[row] = log_sum(joined.largest, joined.sum) - joined.target_logit;
      if (args.d_logits.null()) continue;
      auto* d_logits = args.d_logits.as<float>() + row * args.row_stride();
      softmax_of_part(args.logits.as<const float>() + row * args.row_stride(), joined, args.vocab,
                      d_logits);
      finish_gradient(d_logits, args.vocab, args.row_stride(), targets[row] - args.first_token,
                      args.scale);
    }
  });
}

}  // namespace motley::cpu
