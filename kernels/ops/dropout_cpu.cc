#ifdef __AVX2__
#include <immintrin.h>
#endif

#include <bit>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector.h"
#include "kernels/ops/dropout_draws.h"

namespace motley::cpu {
namespace {

using UInt8 = uint32_t __attribute__((vector_size(kLanes * sizeof(uint32_t))));
using Blocks = uint64_t __attribute__((vector_size(kLanes * sizeof(uint32_t))));

/// Draws made at once: four blocks.
constexpr int64_t kDraws = 16;
static_assert(kTaskElements % kDraws == 0);

/// Compilers do not find the instruction: they multiply all 64 bits, at three times the price.
struct MultiplyLanes {
  Blocks operator()(Blocks words, uint32_t factor) const {
#ifdef __AVX2__
    return std::bit_cast<Blocks>(_mm256_mul_epu32(
        std::bit_cast<__m256i>(words), _mm256_set1_epi64x(static_cast<int64_t>(factor))));
#else
    return (words & 0xffffffffu) * uint64_t{factor};
#endif
  }
};

struct Mask {
  uint32_t threshold;
  float scale;

  Float8 apply(Blocks draws, Float8 x) const {
    return std::bit_cast<UInt8>(draws) >= threshold ? x * scale : Float8{};
  }
};

/// Elements [begin, end) of a sample; begin is a multiple of kDraws.
void drop(const DropoutStream& stream, const Mask& mask, int64_t begin, int64_t end, const float* x,
          float* out) {
  for (int64_t i = begin; i < end; i += kDraws) {
    const Blocks block = Blocks{0, 1, 2, 3} + static_cast<uint64_t>(i / 4);
    const auto [word] = dropout_draws(stream, block, MultiplyLanes());
    // Pairs of draws in a lane, then the pairs of each block side by side.
    const Blocks low = (word[0] & 0xffffffffu) | (word[1] << 32);
    const Blocks high = (word[2] & 0xffffffffu) | (word[3] << 32);
    const Blocks draws[2] = {__builtin_shufflevector(low, high, 0, 4, 1, 5),
                             __builtin_shufflevector(low, high, 2, 6, 3, 7)};
    for_lanes(std::min(kDraws, end - i), [&](int64_t j, int64_t lanes) {
      store(out + i + j, mask.apply(draws[j / kLanes], load(x + i + j, lanes)), lanes);
    });
  }
}

}  // namespace

void dropout(Device& device, const DropoutArgs& args) {
  const auto* position = args.position.as<const int64_t>();
  const Mask mask{args.threshold(), static_cast<float>(1 / (1 - args.rate))};
  const int64_t tasks_a_sample = ceil_div(args.elements_per_sample, kTaskElements);
  const auto task = [&](int64_t index, int) {
    const int64_t sample = index / tasks_a_sample, begin = index % tasks_a_sample * kTaskElements;
    const DropoutStream stream{args.seed, static_cast<uint64_t>(args.site),
                               static_cast<uint64_t>(position[0]),
                               static_cast<uint64_t>(position[1] + sample)};
    drop(stream, mask, begin, std::min(args.elements_per_sample, begin + kTaskElements),
         args.x.as<const float>() + sample * args.elements_per_sample,
         args.out.as<float>() + sample * args.elements_per_sample);
  };
  device.parallel_for(args.samples * tasks_a_sample, std::ref(task));
}

}  // namespace motley::cpu
