#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/softmax.h"

namespace motley::cpu {

void cross_entropy(Device& device, const CrossEntropyArgs& args) {
  const auto* targets = args.targets.as<const int32_t>();
  parallel_rows(device, args.rows, args.vocab, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto* logits = args.logits.as<const float>() + row * args.vocab;
      const int32_t target = targets[row];
      const float target_logit = logits[target];  // d_logits may be logits
      auto& loss = args.losses.as<float>()[row];
      if (args.d_logits.null()) {
        loss = log_sum_exp(logits, args.vocab) - target_logit;
      } else {
        auto* d_logits = args.d_logits.as<float>() + row * args.vocab;
        loss = softmax(logits, args.vocab, d_logits) - target_logit;
        d_logits[target] -= 1;
      }
    }
  });
}

}  // namespace motley::cpu
