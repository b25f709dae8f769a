#include "comm/compression/cast_codecs.h"

#include <cstring>

#include "comm/compression/magnitude.h"
#include "core/reduced_floats.h"
#include "kernels/cpu/half_floats.h"

namespace motley {
namespace {

float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

/// The exponent of what encoding multiplies by: see Fp16Codec.
int fp16_exponent(std::span<const float> in) {
  constexpr int32_t kHalfOfLastBit = 1 << 12;  // of 10 bits of mantissa
  const int32_t most = largest_magnitude_bits(in.data(), std::ssize(in));
  if (most == 0 || most >= kInfinityBits) return 0;
  const int exponent = ((most + kHalfOfLastBit) >> 23) - 127;
  return std::min(14 - exponent, 126);  // the power and its inverse are both normal numbers
}

}  // namespace

PlainCodec::PlainCodec() : Codec({.kind = CodecKind::kOff}) {}

void PlainCodec::do_encode(std::span<const float> in, std::byte* out) {
  std::memcpy(out, in.data(), in.size_bytes());
}

void PlainCodec::do_decode(const std::byte* in, std::span<float> out) {
  std::memcpy(out.data(), in, out.size_bytes());
}

Bf16Codec::Bf16Codec() : Codec({.kind = CodecKind::kBf16}) {}

void Bf16Codec::do_encode(std::span<const float> in, std::byte* out) {
  for (size_t i = 0; i < in.size(); ++i) {
    const uint16_t bits = Bf16::round(in[i]);
    std::memcpy(out + 2 * i, &bits, sizeof bits);
  }
}

void Bf16Codec::do_decode(const std::byte* in, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, in + 2 * i, sizeof bits);
    out[i] = Bf16::widen(bits);
  }
}

Fp16Codec::Fp16Codec() : Codec({.kind = CodecKind::kFp16}) {}

void Fp16Codec::do_encode(std::span<const float> in, std::byte* out) {
  const int exponent = fp16_exponent(in);
  const float up = power_of_two(-exponent);
  std::memcpy(out, &up, sizeof up);
  if (halves_.size() < in.size()) halves_.resize(in.size());
  cpu::round_to_fp16(in.data(), power_of_two(exponent), halves_.data(), std::ssize(in));
  std::memcpy(out + sizeof up, halves_.data(), in.size() * sizeof(uint16_t));
}

void Fp16Codec::do_decode(const std::byte* in, std::span<float> out) {
  float up;
  std::memcpy(&up, in, sizeof up);
  if (halves_.size() < out.size()) halves_.resize(out.size());
  std::memcpy(halves_.data(), in + sizeof up, out.size() * sizeof(uint16_t));
  cpu::widen_fp16(halves_.data(), up, out.data(), std::ssize(out));
}

}  // namespace motley
