#pragma once
// The elements of largest magnitude, with their indices; the others are 0.

#include <array>

#include "comm/compression/codec.h"

namespace motley {

/// kept_elements() of the span as a whole, of equal magnitudes those of lower index; NaN counts as
/// larger than an infinity. The bytes: for every 2^16 elements, in 4 bytes, how many of them are
/// sent; then the indices of those within their 2^16, rising, 2 bytes each; then their values
/// through codec_of_values(). Spans are shorter than 2^32.
class TopKCodec : public Codec {
 public:
  explicit TopKCodec(const CodecSpec& spec);

 private:
  void do_encode(std::span<const float> in, std::byte* out) override;
  void do_decode(const std::byte* in, std::span<float> out) override;
  void do_decode_add(const std::byte* in, std::span<float> out) override;

  /// Puts the indices to be sent into indices_, rising.
  void select(std::span<const float> in, int64_t kept);
  /// The same for all elements not below `floor`; they are at least `kept`.
  void gather(std::span<const float> in, int32_t floor);
  void drop_smallest(std::span<const float> in, int64_t kept);
  template <class Put>
  void for_sent(const std::byte* in, std::span<float> out, const Put& put);

  static constexpr int kDroppedBits =
      20;  ///< of a magnitude: 8 bits of exponent, 3 of mantissa stay
  std::unique_ptr<Codec> value_codec_;
  std::array<uint32_t, 1 << (31 - kDroppedBits)> histogram_{};
  std::vector<uint32_t> indices_;
  std::vector<int32_t> magnitudes_;
  std::vector<uint16_t> short_indices_;
  std::vector<float> values_;
};

}  // namespace motley
