#pragma once
// Blocks of CodecSpec::kBlock elements, the last one shorter, each with a scale of its own; a
// block's bytes are the scale, then its elements. Blocks do not know of each other.

#include "comm/compression/codec.h"

namespace motley {

/// An element is a signed byte times the scale, which is a 127th of the block's largest magnitude:
/// to the nearest, ties to even. A block below 127·2^-126 becomes 0; one with an infinity or NaN
/// has the scale NaN.
class Int8Codec : public Codec {
 public:
  Int8Codec();

 private:
  void do_encode(std::span<const float> in, std::byte* out) override;
  void do_decode(const std::byte* in, std::span<float> out) override;
};

/// An element is a bit, its sign (that of a 0 counts), for the scale or its negative: the block's
/// mean magnitude, which is infinite or NaN if an element is. The first element is a byte's lowest
/// bit.
class SignCodec : public Codec {
 public:
  SignCodec();

 private:
  void do_encode(std::span<const float> in, std::byte* out) override;
  void do_decode(const std::byte* in, std::span<float> out) override;
};

}  // namespace motley
