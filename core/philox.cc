#include "core/philox.h"

#include <cmath>
#include <numbers>

#include "core/check.h"

namespace motley {

namespace {

// Multipliers and Weyl increments of Philox4x32 (Salmon et al. 2011, table 2 and section 4).
constexpr uint64_t kMultiplier0 = 0xD2511F53;
constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

// More than the four that make a Feistel network of good round functions indistinguishable from
// random: the halves are tiny for small corpora.
constexpr int kFeistelRounds = 6;

std::array<uint32_t, 4> block(uint64_t seed, RandomUse use, uint32_t stream, uint64_t number) {
  return philox4x32({static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), stream,
                     static_cast<uint32_t>(use)},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

uint64_t joined(uint32_t high, uint32_t low) { return (static_cast<uint64_t>(high) << 32) | low; }

// A permutation of [0, 4^half_bits).
uint64_t feistel(uint64_t seed, uint32_t epoch, uint64_t value, int half_bits) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits;
  uint64_t right = value & mask;
  for (uint64_t round = 0; round < kFeistelRounds; ++round) {
    // The round goes above the half's (at most 32) bits, so that each round has its own function.
    const auto random = block(seed, RandomUse::kShuffle, epoch, (round << 32) | right);
    const uint64_t mixed = left ^ (random[0] & mask);
    left = right;
    right = mixed;
  }
  return (left << half_bits) | right;
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

uint32_t random_u32(uint64_t seed, RandomUse use, uint32_t stream, uint64_t index) {
  return block(seed, use, stream, index / 4)[index % 4];
}

float random_uniform(uint64_t seed, RandomUse use, uint32_t stream, uint64_t index) {
  return static_cast<float>(random_u32(seed, use, stream, index) >> 8) * 0x1p-24F;
}

float random_normal(uint64_t seed, RandomUse use, uint32_t stream, uint64_t index) {
  const auto random = block(seed, use, stream, index);
  // 53 bits each; the first in (0, 1] because of the logarithm.
  const double u = (static_cast<double>(joined(random[0], random[1]) >> 11) + 1) * 0x1p-53;
  const double v = static_cast<double>(joined(random[2], random[3]) >> 11) * 0x1p-53;
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
}

uint64_t permuted_index(uint64_t seed, uint32_t epoch, uint64_t index, uint64_t size) {
  MOTLEY_CHECK_LT(index, size);
  int half_bits = 1;
  while (half_bits < 32 && (size - 1) >> (2 * half_bits) != 0) ++half_bits;
  // Cycle walking: the network permutes a power of four; positions outside [0, size) are passed
  // through again. Fewer than four passes on average.
  do {
    index = feistel(seed, epoch, index, half_bits);
  } while (index >= size);
  return index;
}

}  // namespace motley
