#include <algorithm>
#include <cmath>

#include "kernels/reference/reference_ops.h"

namespace motley::reference {

void cross_entropy(Device&, const CrossEntropyArgs& args) {
  const auto* targets = args.targets.as<const int32_t>();
  for (int64_t row = 0; row < args.rows; ++row) {
    const auto* logits = args.logits.as<const double>() + row * args.vocab;
    const double largest = *std::max_element(logits, logits + args.vocab);
    double sum = 0;
    for (int64_t i = 0; i < args.vocab; ++i) sum += std::exp(logits[i] - largest);
    const double lse = largest + std::log(sum);
    args.losses.as<double>()[row] = lse - logits[targets[row]];
    if (args.d_logits.null()) continue;
    auto* d_logits = args.d_logits.as<double>() + row * args.vocab;
    for (int64_t i = 0; i < args.vocab; ++i)
      d_logits[i] = std::exp(logits[i] - lse) - (i == targets[row] ? 1 : 0);
  }
}

}  // namespace motley::reference
