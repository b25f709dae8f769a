#include <algorithm>
#include <limits>
#include <numeric>

#include "comm/compression/codec.h"
#include "core/hash.h"
#include "core/philox.h"
#include "tests/unit/comm/compression_inputs.h"

namespace motley {
namespace {

using testing::codec_of;
using testing::encoded;
using testing::for_codecs_and_lengths;
using testing::sent;
using testing::some_gradient;
using testing::top_k_of;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr size_t kBlockSize = CodecSpec::kBlock;

TEST(Codec, SizesFollowFromTheCount) {
  const std::tuple<CodecSpec, int64_t, int64_t> cases[] = {
      {codec_of(CodecKind::kOff), 257, 1028},
      {codec_of(CodecKind::kFp16), 0, 0},
      {codec_of(CodecKind::kFp16), 3, 10},
      {codec_of(CodecKind::kBf16), 3, 6},
      {codec_of(CodecKind::kInt8), 256, 260},
      {codec_of(CodecKind::kInt8), 257, 265},
      {codec_of(CodecKind::kSign), 1, 5},
      {codec_of(CodecKind::kSign), 256, 36},
      {codec_of(CodecKind::kSign), 257, 41},
      {codec_of(CodecKind::kSign), 266, 42},
      {top_k_of(0.01, CodecValues::kFp32), 0, 0},
      {top_k_of(0.01, CodecValues::kFp32), 1, 4 + 6},
      {top_k_of(0.01, CodecValues::kFp32), 65536, 4 + 655 * 6},
      {top_k_of(0.01, CodecValues::kFp32), 65537, 8 + 655 * 6},
      {top_k_of(0.10, CodecValues::kFp16), 1000, 4 + 100 * 4 + 4},
      {top_k_of(0.10, CodecValues::kBf16), 1000, 4 + 100 * 4},
      {top_k_of(0.10, CodecValues::kInt8), 10000, 4 + 1000 * 3 + 4 * 4},
  };
  for (const auto& [codec, elements, bytes] : cases)
    EXPECT_EQ(encoded_bytes(codec, elements), bytes) << to_text(codec) << ", " << elements;
}

TEST(Codec, EveryByteIsWrittenAndNoOther) {
  for_codecs_and_lengths([](Codec& codec, const std::vector<float>& gradient) {
    const auto size = static_cast<size_t>(codec.encoded_bytes(std::ssize(gradient)));
    std::vector<std::byte> zeros(size + 2, std::byte{0}), ones(size + 2, std::byte{0xff});
    codec.encode(gradient, std::span(zeros).subspan(1, size));  // at an odd address
    codec.encode(gradient, std::span(ones).subspan(1, size));
    EXPECT_TRUE(std::equal(zeros.begin() + 1, zeros.end() - 1, ones.begin() + 1));
    EXPECT_EQ(zeros.front(), std::byte{0});
    EXPECT_EQ(zeros.back(), std::byte{0});
    EXPECT_EQ(ones.front(), std::byte{0xff});
    EXPECT_EQ(ones.back(), std::byte{0xff});
  });
}

TEST(Codec, BytesDependOnTheElementsAlone) {
  for_codecs_and_lengths([](Codec& codec, const std::vector<float>& gradient) {
    const std::vector<std::byte> first = encoded(codec, gradient);
    encoded(codec, std::vector<float>(300, 5.0F));
    EXPECT_EQ(encoded(codec, gradient), first);
    EXPECT_EQ(encoded(*make_codec(codec.spec()), gradient), first);
  });
}

/// The bits that every machine must arrive at; a change of theirs is a change of the format.
TEST(Codec, BytesAreThoseOfEveryMachine) {
  std::vector<float> gradient(1000);
  for (size_t i = 0; i < gradient.size(); ++i)
    gradient[i] = random_uniform(1, RandomUse::kSampling, 0, i) - 0.4F;
  const char* const hashes[] = {"e0eeb1d7a0a0ed0e", "42081555ff7f64a2", "e5a1a8ac519bff0e",
                                "e77fe6ba4ce4efd2", "ed63f81ff2bd05ca", "b297c47fd3b7f53c",
                                "8395ad2db7be0743", "1e8ca3b13c9b80c0", "dc265428d9d6cb78"};
  const std::vector<CodecSpec> codecs = testing::all_codecs();
  ASSERT_EQ(codecs.size(), std::size(hashes));
  for (size_t i = 0; i < codecs.size(); ++i) {
    const std::vector<std::byte> bytes = encoded(*make_codec(codecs[i]), gradient);
    EXPECT_EQ(xxh3_64_hex(bytes.data(), bytes.size()), hashes[i]) << to_text(codecs[i]);
  }
}

TEST(Codec, DecodingAddsWhatItWouldWrite) {
  for_codecs_and_lengths([](Codec& codec, const std::vector<float>& gradient) {
    const std::vector<std::byte> bytes = encoded(codec, gradient);
    std::vector<float> sum(gradient.size(), 0.25F), decoded(gradient.size());
    codec.decode_add(bytes, sum);
    codec.decode(bytes, decoded);
    for (size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], 0.25F + decoded[i]) << i;
  });
}

/// Of a span, or of its blocks.
float largest_of(std::span<const float> values) {
  float most = 0;
  for (const float value : values) most = std::max(most, std::fabs(value));
  return most;
}

TEST(Codec, Bf16KeepsEightBits) {
  std::mt19937 random(seed_of_this_run());
  for (const size_t length : testing::kLengths) {
    const std::vector<float> x = some_gradient(length, random);
    const std::vector<float> y = sent(*make_codec(codec_of(CodecKind::kBf16)), x);
    for (size_t i = 0; i < length; ++i)
      ASSERT_LE(std::fabs(x[i] - y[i]), 0x1p-8F * std::fabs(x[i]));
  }
}

void expect_fp16_bound(std::span<const float> x) {
  const auto codec = make_codec(codec_of(CodecKind::kFp16));
  const std::vector<float> y = sent(*codec, x);
  const double floor = std::ldexp(double{largest_of(x)}, -39);
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_LE(std::fabs(double{x[i]} - y[i]), std::max(0x1p-11 * std::fabs(x[i]), floor)) << x[i];
  ASSERT_EQ(sent(*codec, y), y) << "what has been decoded comes through unchanged";
}

TEST(Codec, Fp16KeepsElevenBitsWhateverTheSize) {
  std::mt19937 random(seed_of_this_run());
  for (const size_t length : testing::kLengths) expect_fp16_bound(some_gradient(length, random));
  // A sum over a large batch, and the smallest and largest there are.
  for (const float size : {1e9F, 1e30F, 3e38F, 1e-20F, 1e-38F, 1e-41F, 1e-45F})
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<float> x(9);
      std::uniform_real_distribution<float> uniform(-1, 1);
      for (float& value : x) value = size * uniform(random);
      expect_fp16_bound(x);
    }
}

TEST(Codec, Int8IsWrongByHalfAScale) {
  std::mt19937 random(seed_of_this_run());
  for (const size_t length : testing::kLengths) {
    const std::vector<float> x = some_gradient(length, random);
    const std::vector<float> y = sent(*make_codec(codec_of(CodecKind::kInt8)), x);
    for (size_t begin = 0; begin < length; begin += kBlockSize) {
      const auto block = std::span(x).subspan(begin, std::min(kBlockSize, length - begin));
      const double scale = double{largest_of(block)} / 127;
      for (size_t i = begin; i < begin + block.size(); ++i)
        ASSERT_LE(std::fabs(double{x[i]} - y[i]), scale * 0.50002) << i;
    }
  }
}

TEST(Codec, Int8IsGoodAtTheEndsOfTheRange) {
  const auto codec = make_codec(codec_of(CodecKind::kInt8));
  const float most = 0.99F * std::numeric_limits<float>::max();
  EXPECT_NEAR(sent(*codec, std::vector<float>{most, -most / 2})[0], most, 1e32);
  for (const float tiny : {1e-45F, 1e-40F, 1e-38F, 1e-36F}) {
    const std::vector<float> y = sent(*codec, std::vector<float>{tiny, -tiny / 2});
    EXPECT_LE(std::fabs(y[0] - tiny), 1.5e-36F);
    EXPECT_LE(std::fabs(y[1] + tiny / 2), 1.5e-36F);
  }
}

TEST(Codec, SignKeepsSignsAndTheMeanMagnitude) {
  std::mt19937 random(seed_of_this_run());
  for (const size_t length : testing::kLengths) {
    const std::vector<float> x = some_gradient(length, random);
    const std::vector<float> y = sent(*make_codec(codec_of(CodecKind::kSign)), x);
    for (size_t begin = 0; begin < length; begin += kBlockSize) {
      const size_t end = std::min(length, begin + kBlockSize);
      double mean = 0;
      for (size_t i = begin; i < end; ++i)
        mean += std::fabs(x[i]) / static_cast<double>(end - begin);
      for (size_t i = begin; i < end; ++i) {
        ASSERT_EQ(std::signbit(x[i]), std::signbit(y[i])) << i;
        ASSERT_NEAR(std::fabs(y[i]), mean, 1e-6 * mean) << i;
      }
    }
  }
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(sent(*make_codec(codec_of(CodecKind::kSign)), std::vector<float>(300, -most)),
            std::vector<float>(300, -most));
}

/// By sorting all of them.
std::vector<float> largest_only(std::span<const float> x, int64_t kept) {
  std::vector<size_t> order(x.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return std::fabs(x[a]) > std::fabs(x[b]); });
  std::vector<float> result(x.size(), 0.0F);
  for (size_t i = 0; i < static_cast<size_t>(kept); ++i) result[order[i]] = x[order[i]];
  return result;
}

TEST(Codec, TopKKeepsTheLargestAsTheyAre) {
  std::mt19937 random(seed_of_this_run());
  for (const double fraction : {0.01, 0.037, 0.1}) {
    const CodecSpec spec = top_k_of(fraction, CodecValues::kFp32);
    for (const size_t length : testing::kLengths) {
      SCOPED_TRACE(std::to_string(length) + " elements");
      std::vector<float> x = some_gradient(length, random);
      const int64_t kept = kept_elements(spec, std::ssize(x));
      EXPECT_EQ(sent(*make_codec(spec), x), largest_only(x, kept));
      for (float& value : x) value = static_cast<float>(static_cast<int>(random() % 7) - 3);
      EXPECT_EQ(sent(*make_codec(spec), x), largest_only(x, kept)) << "of equals the first";
      EXPECT_EQ(sent(*make_codec(spec), std::vector<float>(length, -2.0F)),
                largest_only(std::vector<float>(length, -2.0F), kept));
    }
  }
}

TEST(Codec, TopKSendsItsValuesThroughAnotherCodec) {
  std::mt19937 random(seed_of_this_run());
  for (const CodecValues values : {CodecValues::kFp16, CodecValues::kBf16, CodecValues::kInt8}) {
    const std::vector<float> x = some_gradient(10'000, random);
    const std::vector<float> whole = sent(*make_codec(top_k_of(0.05, CodecValues::kFp32)), x);
    std::vector<float> expected;
    for (const float value : whole)
      if (value != 0) expected.push_back(value);
    ASSERT_EQ(expected.size(), 500U);
    expected = sent(*make_codec(codec_of_values(values)), expected);
    const std::vector<float> y = sent(*make_codec(top_k_of(0.05, values)), x);
    size_t next = 0;
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_EQ(y[i], whole[i] != 0 ? expected[next++] : 0.0F) << i;
  }
}

TEST(Codec, AConstantStaysIt) {
  for (const CodecSpec& spec : testing::all_codecs()) {
    if (spec.kind == CodecKind::kTopK) continue;  // only with feedback
    for (const float constant : {0.0F, 1.0F, -0.3F, 1e-5F, 3e4F, -7e7F}) {
      const std::vector<std::byte> bytes =
          encoded(*make_codec(spec), std::vector<float>(1000, constant));
      std::vector<float> sum(1000, 0.0F);
      for (int rank = 0; rank < 5; ++rank) make_codec(spec)->decode_add(bytes, sum);
      const float bound = spec.kind == CodecKind::kBf16   ? 0x1p-8F
                          : spec.kind == CodecKind::kFp16 ? 0x1p-11F
                                                          : 1e-6F;
      for (const float value : sum)
        ASSERT_NEAR(value / 5, constant, bound * std::fabs(constant)) << to_text(spec);
    }
  }
}

TEST(Codec, WhatIsNotFiniteDoesNotBecomeANumber) {
  std::mt19937 random(seed_of_this_run());
  for (const CodecSpec& spec : testing::all_codecs())
    for (const float bad : {kInf, -kInf, kNan, -kNan}) {
      std::vector<float> x = some_gradient(1000, random);
      const size_t at = random() % x.size();
      x[at] = bad;
      const std::vector<float> y = sent(*make_codec(spec), x);
      EXPECT_FALSE(std::isfinite(y[at])) << to_text(spec) << ": " << bad << " at " << at;
      const bool by_block = spec.kind == CodecKind::kInt8 || spec.kind == CodecKind::kSign;
      for (size_t i = 0; i < x.size(); ++i)
        if (by_block || spec.kind == CodecKind::kOff || spec.kind == CodecKind::kBf16) {
          const bool spoilt = by_block ? i / kBlockSize == at / kBlockSize : i == at;
          EXPECT_EQ(std::isfinite(y[i]), !spoilt) << to_text(spec) << ": " << i;
        }
    }
}

TEST(Codec, ASpanWithoutAFiniteElementStaysOne) {
  for (const CodecSpec& spec : testing::all_codecs())
    for (const float bad : {kInf, -kInf, kNan}) {
      const std::vector<float> y = sent(*make_codec(spec), std::vector<float>(700, bad));
      const auto finite =
          std::count_if(y.begin(), y.end(), [](float v) { return std::isfinite(v); });
      const int64_t left_out = spec.kind == CodecKind::kTopK ? 700 - kept_elements(spec, 700) : 0;
      EXPECT_EQ(finite, left_out) << to_text(spec);
    }
}

template <class T>
std::vector<T> permuted(std::span<const T> values, std::span<const size_t> order, size_t unit) {
  std::vector<T> result;
  for (const size_t from : order)
    for (size_t i = 0; i < unit; ++i) result.push_back(values[from * unit + i]);
  return result;
}

TEST(Codec, AnOrderOfTheInputIsThatOfTheOutput) {
  std::mt19937 random(seed_of_this_run());
  for (const CodecSpec& spec : testing::all_codecs()) {
    if (spec.kind == CodecKind::kTopK && spec.values == CodecValues::kInt8)
      continue;  // blocks of the kept
    const bool by_block = spec.kind == CodecKind::kInt8 || spec.kind == CodecKind::kSign;
    const size_t unit = by_block ? kBlockSize : 1;
    std::vector<float> x(unit * 500);  // no two magnitudes are the same
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = (random() % 2 == 0 ? 1.0F : -1.0F) * static_cast<float>(i + 1) * 0x1p-10F;
    std::shuffle(x.begin(), x.end(), random);
    std::vector<size_t> order(500);
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    const std::vector<float> y = sent(*make_codec(spec), x);
    EXPECT_EQ(sent(*make_codec(spec), permuted<float>(x, order, unit)),
              permuted<float>(y, order, unit))
        << to_text(spec);
  }
}

}  // namespace
}  // namespace motley
