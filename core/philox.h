#pragma once
// Counter-based random numbers: Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3" (SC'11). A value depends on (key, counter) alone, hence never on the plan, thread or
// order.

#include <array>
#include <cstdint>

namespace motley {

/// Ten rounds of Philox4x32. Host code; the CUDA kernels compute the same bits.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// What a stream of random numbers is for; the low byte of the counter's last word, so that uses
/// never overlap. Dropout has a counter of its own (kernels/ops/dropout.h).
enum class RandomUse : uint32_t {
  kInit = 1,
  kShuffle = 2,
  kDropout = 3,
  kSampling = 4,
  kCompression = 5
};

/// The i-th uniform 32-bit number of the stream (seed, use, stream): word i % 4 of block i / 4.
uint32_t random_u32(uint64_t seed, RandomUse use, uint32_t stream, uint64_t index);

/// Uniform in [0, 1), 24 bits.
float random_uniform(uint64_t seed, RandomUse use, uint32_t stream, uint64_t index);

/// Standard normal by Box-Muller from block `index`, in double and rounded once. A stream gives
/// either uniform or normal numbers, as both read the same blocks.
float random_normal(uint64_t seed, RandomUse use, uint32_t stream, uint64_t index);

/// A pseudo-random permutation of [0, size): the image of `index` < size <= 2^62. Feistel network
/// with cycle walking; stateless, so any position of any epoch can be asked for directly.
uint64_t permuted_index(uint64_t seed, uint32_t epoch, uint64_t index, uint64_t size);

}  // namespace motley
