#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"

namespace motley::cpu {
namespace {

/// Parts summed side by side; each is a run of whole blocks.
constexpr int64_t kParts = 256;
constexpr int kChains = 16;

double sum_block(const float* x, int64_t count) {
  double chain[kChains] = {};
  int64_t i = 0;
  for (; i + kChains <= count; i += kChains)
    for (int j = 0; j < kChains; ++j)
      chain[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
  for (int j = 0; i < count; ++i, ++j)
    chain[j] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  for (int half = kChains / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) chain[j] += chain[j + half];
  return chain[0];
}

double sum_of(Device& device, const float* x, int64_t count) {
  const int64_t blocks_a_part = std::max<int64_t>(1, ceil_div(count, kSquareSumBlock * kParts));
  double parts[kParts] = {};
  parallel_ranges(device, count, blocks_a_part * kSquareSumBlock, [&](int64_t begin, int64_t end) {
    double& part = parts[begin / (blocks_a_part * kSquareSumBlock)];
    for (int64_t i = begin; i < end; i += kSquareSumBlock)
      part += sum_block(x + i, std::min(kSquareSumBlock, end - i));
  });
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum;
}

}  // namespace

void square_sum(Device& device, const SquareSumArgs& args) {
  const auto* x = args.x.as<const float>();
  auto* out = args.out.as<double>();
  if (args.runs.null()) *out = sum_of(device, x, args.count);
  for (int64_t r = 0; r < args.run_count; ++r) {
    const auto& run = args.runs.as<const ParameterRun>()[r];
    out[r] = sum_of(device, x + run.parameter, run.count);
  }
}

}  // namespace motley::cpu
