#pragma once
// What the tests of compression compress.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "comm/compression/codec.h"
#include "comm/compression/power_sgd.h"
#include "tests/support/new_seeds.h"

namespace motley::testing {

inline CodecSpec codec_of(CodecKind kind) {
  CodecSpec codec;
  codec.kind = kind;
  return codec;
}

inline CodecSpec top_k_of(double fraction, CodecValues values) {
  return {.kind = CodecKind::kTopK, .fraction = fraction, .values = values};
}

/// Every kind for spans of floats, top-k with all its values.
inline std::vector<CodecSpec> all_codecs() {
  std::vector<CodecSpec> codecs;
  for (const CodecKind kind :
       {CodecKind::kOff, CodecKind::kFp16, CodecKind::kBf16, CodecKind::kInt8, CodecKind::kSign})
    codecs.push_back(codec_of(kind));
  codecs.push_back(top_k_of(0.01, CodecValues::kFp32));
  codecs.push_back(top_k_of(0.10, CodecValues::kFp16));
  codecs.push_back(top_k_of(0.05, CodecValues::kBf16));
  codecs.push_back(top_k_of(0.02, CodecValues::kInt8));
  return codecs;
}

/// PowerSGD of one tensor on one rank, with what it borrows.
struct PowerSgdOfOne {
  PowerSgdOfOne(const CodecSpec& spec, MatrixShape shape, uint64_t seed, uint32_t tensor)
      : residual(static_cast<size_t>(shape.rows * shape.columns), 0.0F),
        p(static_cast<size_t>(power_sgd_rank(spec, shape) * shape.rows), 0.0F),
        q(static_cast<size_t>(power_sgd_rank(spec, shape) * shape.columns), 0.0F),
        power_sgd(spec, shape, {residual, p, q}, seed, tensor) {}
  PowerSgdOfOne(const PowerSgdOfOne&) = delete;
  PowerSgdOfOne& operator=(const PowerSgdOfOne&) = delete;

  std::vector<float> residual, p, q;
  PowerSgd power_sgd;
};

inline constexpr size_t kLengths[] = {0, 1, 3, 255, 256, 257, 65535, 65536, 200003};

/// As gradients are: around 0, of magnitudes that differ from stretch to stretch, some of them 0.
inline std::vector<float> some_gradient(size_t count, std::mt19937& random) {
  std::vector<float> gradient(count);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> exponent(-6, 3);
  float size = 1;
  for (size_t i = 0; i < count; ++i) {
    if (i % 100 == 0) size = std::pow(10.0F, exponent(random));
    gradient[i] = random() % 20 == 0 ? 0 : size * normal(random);
  }
  return gradient;
}

inline std::vector<std::byte> encoded(Codec& codec, std::span<const float> in) {
  std::vector<std::byte> bytes(static_cast<size_t>(codec.encoded_bytes(std::ssize(in))));
  codec.encode(in, bytes);
  return bytes;
}

/// There and back.
inline std::vector<float> sent(Codec& codec, std::span<const float> in) {
  std::vector<float> out(in.size(), 7.0F);
  codec.decode(encoded(codec, in), out);
  return out;
}

/// Sums factors as islands do that send them in such values; what each of them lost.
inline std::vector<std::vector<float>> sum_factors(const std::vector<std::span<float>>& factors,
                                                   CodecValues values) {
  const auto codec = make_codec(codec_of_values(values));
  std::vector<std::vector<float>> lost;
  std::vector<float> sum(factors[0].size(), 0.0F);
  for (const std::span<float> factor : factors) {
    const std::vector<float> got = sent(*codec, factor);
    lost.emplace_back(factor.begin(), factor.end());
    for (size_t i = 0; i < sum.size(); ++i) {
      lost.back()[i] -= got[i];
      sum[i] += got[i];
    }
  }
  for (const std::span<float> factor : factors) std::copy(sum.begin(), sum.end(), factor.begin());
  return lost;
}

/// Calls `body(codec, gradient)` for every kind and length, with new numbers in every run.
template <class Body>
void for_codecs_and_lengths(const Body& body) {
  std::mt19937 random(seed_of_this_run());
  for (const CodecSpec& spec : all_codecs()) {
    const auto codec = make_codec(spec);
    for (const size_t length : kLengths) {
      SCOPED_TRACE(to_text(spec) + ", " + std::to_string(length) + " elements");
      body(*codec, some_gradient(length, random));
    }
  }
}

}  // namespace motley::testing
