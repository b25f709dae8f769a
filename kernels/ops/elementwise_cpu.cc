#include <atomic>
#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"

namespace motley::cpu {
namespace {

constexpr int64_t kTaskBytes = 1 << 20;

}  // namespace

void add(Device& device, const AddArgs& args) {
  const auto* a = args.a.as<const float>();
  const auto* b = args.b.as<const float>();
  auto* out = args.out.as<float>();
  parallel_ranges(device, args.count, kTaskElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = a[i] + b[i];
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
