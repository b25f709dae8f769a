#include "comm/compression/block_codecs.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "comm/compression/magnitude.h"

namespace motley {
namespace {

constexpr int64_t kBlock = CodecSpec::kBlock;
constexpr int64_t kScaleBytes = sizeof(float);

float int8_scale(const float* block, int64_t count) {
  const int32_t most = largest_magnitude_bits(block, count);
  if (most >= kInfinityBits) return std::numeric_limits<float>::quiet_NaN();
  const float scale = std::bit_cast<float>(most) / 127;
  return scale < std::numeric_limits<float>::min() ? 0 : scale;
}

void encode_int8(const float* block, int64_t count, std::byte* out) {
  const float scale = int8_scale(block, count);
  std::memcpy(out, &scale, kScaleBytes);
  out += kScaleBytes;
  if (!(scale > 0)) {
    std::memset(out, 0, static_cast<size_t>(count));
    return;
  }
  // Added to a small number, 1.5·2^23 leaves it rounded in the last bits of the sum.
  constexpr float kRounding = 0x1.8p23F;
  const float inverse = 1 / scale;
  for (int64_t i = 0; i < count; ++i)
    out[i] = static_cast<std::byte>(std::bit_cast<uint32_t>(block[i] * inverse + kRounding) & 0xff);
}

void decode_int8(const std::byte* in, float* block, int64_t count) {
  float scale;
  std::memcpy(&scale, in, kScaleBytes);
  in += kScaleBytes;
  for (int64_t i = 0; i < count; ++i)
    block[i] = static_cast<float>(static_cast<int8_t>(in[i])) * scale;
}

/// In double, where no sum of floats overflows, eight sums side by side.
float mean_magnitude(const float* block, int64_t count) {
  constexpr int64_t kSums = 8;
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= count; i += kSums)
    for (int64_t j = 0; j < kSums; ++j) sums[j] += std::fabs(block[i + j]);
  for (int64_t j = 0; i + j < count; ++j) sums[j] += std::fabs(block[i + j]);
  double sum = 0;
  for (const double part : sums) sum += part;
  return static_cast<float>(sum / static_cast<double>(count));
}

void encode_signs(const float* block, int64_t count, std::byte* out) {
  const float scale = mean_magnitude(block, count);
  std::memcpy(out, &scale, kScaleBytes);
  std::array<uint8_t, kBlock> negative{};  // 0 or 1
  for (int64_t i = 0; i < count; ++i)
    negative[static_cast<size_t>(i)] =
        static_cast<uint8_t>(std::bit_cast<uint32_t>(block[i]) >> 31);
  for (int64_t i = 0; i < count; i += 8) {
    // The product's highest byte holds the eight lowest bits of its factor's bytes, in their order.
    uint64_t eight;
    std::memcpy(&eight, negative.data() + i, sizeof eight);
    out[kScaleBytes + i / 8] = static_cast<std::byte>((eight * 0x0102040810204080) >> 56);
  }
}

void decode_signs(const std::byte* in, float* block, int64_t count) {
  static constexpr uint32_t kBits[8] = {1, 2, 4, 8, 16, 32, 64, 128};
  uint32_t scale;
  std::memcpy(&scale, in, kScaleBytes);
  in += kScaleBytes;
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const auto signs = static_cast<uint32_t>(in[i / 8]);
    for (int j = 0; j < 8; ++j)
      block[i + j] = std::bit_cast<float>(scale | ((signs & kBits[j]) != 0 ? 0x80000000U : 0));
  }
  for (; i < count; ++i) {
    const auto signs = static_cast<uint32_t>(in[i / 8]);
    block[i] = std::bit_cast<float>(scale | ((signs & kBits[i % 8]) != 0 ? 0x80000000U : 0));
  }
}

constexpr int64_t kInt8BlockBytes = kScaleBytes + kBlock;
constexpr int64_t kSignBlockBytes = kScaleBytes + kBlock / 8;

/// body(first element, elements, number of the block)
template <class Body>
void for_blocks(size_t size, const Body& body) {
  const auto count = static_cast<int64_t>(size);
  for (int64_t first = 0; first < count; first += kBlock)
    body(first, std::min(kBlock, count - first), first / kBlock);
}

}  // namespace

Int8Codec::Int8Codec() : Codec({.kind = CodecKind::kInt8}) {}

void Int8Codec::do_encode(std::span<const float> in, std::byte* out) {
  for_blocks(in.size(), [&](int64_t first, int64_t count, int64_t block) {
    encode_int8(in.data() + first, count, out + block * kInt8BlockBytes);
  });
}

void Int8Codec::do_decode(const std::byte* in, std::span<float> out) {
  for_blocks(out.size(), [&](int64_t first, int64_t count, int64_t block) {
    decode_int8(in + block * kInt8BlockBytes, out.data() + first, count);
  });
}

SignCodec::SignCodec() : Codec({.kind = CodecKind::kSign}) {}

void SignCodec::do_encode(std::span<const float> in, std::byte* out) {
  for_blocks(in.size(), [&](int64_t first, int64_t count, int64_t block) {
    encode_signs(in.data() + first, count, out + block * kSignBlockBytes);
  });
}

void SignCodec::do_decode(const std::byte* in, std::span<float> out) {
  for_blocks(out.size(), [&](int64_t first, int64_t count, int64_t block) {
    decode_signs(in + block * kSignBlockBytes, out.data() + first, count);
  });
}

}  // namespace motley
