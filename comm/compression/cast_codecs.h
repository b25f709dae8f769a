#pragma once
// Each element by itself: as it is, in bfloat16, in half precision.

#include "comm/compression/codec.h"

namespace motley {

class PlainCodec : public Codec {
 public:
  PlainCodec();

 private:
  void do_encode(std::span<const float> in, std::byte* out) override;
  void do_decode(const std::byte* in, std::span<float> out) override;
};

/// 2 bytes an element.
class Bf16Codec : public Codec {
 public:
  Bf16Codec();

 private:
  void do_encode(std::span<const float> in, std::byte* out) override;
  void do_decode(const std::byte* in, std::span<float> out) override;
};

/// A float by which decoding multiplies, then 2 bytes an element. It is the power of two that
/// brings the largest magnitude, rounded, into [2^14, 2^15): gradients are sums over a batch, far
/// from the middle of half precision's range. What has been decoded comes through again unchanged.
/// With an infinity or NaN it is 1.
class Fp16Codec : public Codec {
 public:
  Fp16Codec();

 private:
  void do_encode(std::span<const float> in, std::byte* out) override;
  void do_decode(const std::byte* in, std::span<float> out) override;
  std::vector<uint16_t> halves_;
};

}  // namespace motley
