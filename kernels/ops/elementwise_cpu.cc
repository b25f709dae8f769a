#include <atomic>
#include <cmath>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/float_math.h"
#include "kernels/cpu/parallel.h"

namespace motley::cpu {
namespace {

// gelu(x) = x·σ(2u) with u = sqrt(2/π)(x + 0.044715x³) and σ(y) = 1/(1 + e^-y), for
// (1 + tanh u)/2 = σ(2u).
constexpr float kTwiceSqrt2OverPi = 1.5957691216f;
constexpr float kCubic = 0.044715f;

constexpr int64_t kTaskBytes = 1 << 20;

Float8 exp_of_minus_2u(Float8 x) { return exp(-kTwiceSqrt2OverPi * (x + kCubic * x * x * x)); }

}  // namespace

void add(Device& device, const AddArgs& args) {
  const auto* a = args.a.as<const float>();
  const auto* b = args.b.as<const float>();
  auto* out = args.out.as<float>();
  parallel_ranges(device, args.count, kTaskElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = a[i] + b[i];
  });
}

void gelu_forward(Device& device, const GeluForwardArgs& args) {
  parallel_ranges(device, args.count, kTaskElements, [&](int64_t begin, int64_t end) {
    const auto* x = args.x.as<const float>() + begin;
    auto* out = args.out.as<float>() + begin;
    for_lanes(end - begin, [&](int64_t i, int64_t lanes) {
      const Float8 value = load(x + i, lanes);
      store(out + i, value / (1.0f + exp_of_minus_2u(value)), lanes);
    });
  });
}

void gelu_backward(Device& device, const GeluBackwardArgs& args) {
  parallel_ranges(device, args.count, kTaskElements, [&](int64_t begin, int64_t end) {
    const auto* x = args.x.as<const float>() + begin;
    const auto* d_out = args.d_out.as<const float>() + begin;
    auto* d_x = args.d_x.as<float>() + begin;
    for_lanes(end - begin, [&](int64_t i, int64_t lanes) {
      const Float8 value = load(x + i, lanes);
      const Float8 e = exp_of_minus_2u(value);
      const Float8 sigmoid = 1.0f / (1.0f + e);
      const Float8 slope = kTwiceSqrt2OverPi * (1.0f + 3 * kCubic * value * value);
      const Float8 derivative = sigmoid + value * sigmoid * (e * sigmoid) * slope;
      store(d_x + i, load(d_out + i, lanes) * derivative, lanes);
    });
  });
}

void zero(Device& device, const ZeroArgs& args) {
  parallel_ranges(device, args.bytes, kTaskBytes, [&](int64_t begin, int64_t end) {
    std::memset(args.out.as<char>() + begin, 0, static_cast<size_t>(end - begin));
  });
}

void copy(Device& device, const CopyArgs& args) {
  parallel_ranges(device, args.bytes, kTaskBytes, [&](int64_t begin, int64_t end) {
    std::memcpy(args.out.as<char>() + begin, args.in.as<const char>() + begin,
                static_cast<size_t>(end - begin));
  });
}

void round(Device& device, const RoundArgs& args) {
  copy(device, {.in = args.in, .out = args.out, .bytes = args.count * int64_t{sizeof(float)}});
}

void scale(Device& device, const ScaleArgs& args) {
  const auto factor = static_cast<float>(args.factor);
  auto* overflow = args.overflow.as<int64_t>();
  parallel_ranges(device, args.count, kTaskElements, [&](int64_t begin, int64_t end) {
    auto* x = args.x.as<float>();
    int64_t not_finite = 0;
    for (int64_t i = begin; i < end; ++i) {
      x[i] *= factor;
      not_finite += std::abs(x[i]) < __builtin_inff() ? 0 : 1;
    }
    if (not_finite > 0) std::atomic_ref(*overflow).store(1, std::memory_order_relaxed);
  });
}

}  // namespace motley::cpu
