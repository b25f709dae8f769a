#pragma once
// The draws of ops/dropout.h as the CPU and CUDA kernels compute them: one source, so that the test
// of the one covers the other. No other linkage, as it is compiled for several instruction sets.

#include <cstdint>

#include "core/philox.h"

namespace motley {
namespace {

/// What the draws of a sample at one site have in common.
struct DropoutStream {
  uint64_t seed, site, step, sample;
};

/// Four draws of one block (Words is uint64_t), or of as many blocks as a vector of uint64_t has
/// lanes. The lower half of each lane is the draw, the upper half is noise.
template <class Words>
struct DropoutDraws {
  Words word[4];
};

/// The product of the lower half of each lane and a factor.
struct MultiplyLower {
  constexpr uint64_t operator()(uint64_t words, uint32_t factor) const {
    return uint64_t{static_cast<uint32_t>(words)} * factor;
  }
};

/// The draws of elements 4·block to 4·block + 3: ten rounds of Philox4x32 (core/philox.h).
template <class Words, class Multiply = MultiplyLower>
constexpr DropoutDraws<Words> dropout_draws(const DropoutStream& stream, Words block,
                                            const Multiply& multiply = {}) {
  Words c0 = block, c1 = Words{} + stream.sample, c2 = Words{} + stream.step;
  Words c3 = Words{} + (stream.site * 256 + static_cast<uint64_t>(RandomUse::kDropout));
  auto key0 = static_cast<uint32_t>(stream.seed), key1 = static_cast<uint32_t>(stream.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const Words product0 = multiply(c0, 0xD2511F53), product1 = multiply(c2, 0xCD9E8D57);
    c0 = (product1 >> 32) ^ c1 ^ uint64_t { key0 };
    c1 = product1;
    c2 = (product0 >> 32) ^ c3 ^ uint64_t { key1 };
    c3 = product0;
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace
}  // namespace motley
