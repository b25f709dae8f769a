#pragma once
// Gradients in fewer bytes, for slow links. A codec turns a span of floats of any length into as
// many bytes as encoded_bytes() of core/compression.h says, and back, with losses that error
// feedback (error_feedback.h) makes up for in later steps.
//
//   kind   bytes an element  what is lost
//   off    4                 nothing
//   fp16   2                 all but 11 bits, and more of what is 2^29 times below the largest
//   bf16   2                 all but 8 bits
//   int8   1.016             up to half of a 127th of the largest of 256 neighbours
//   sign   0.141             all but the sign and the mean magnitude of 256 neighbours
//   top_k  6·fraction        all but the largest; 4 or 3 with values in fp16, bf16 or int8
//
// Sources: 1-bit SGD of Seide et al. 2014 with the scale of Karimireddy et al. 2019; sparse
// gradients of Aji and Heafield 2017 and Stich et al. 2018.
//
// The same input gives the same bytes, and the same bytes the same floats, on every machine: no
// thread, no random number, one order of every sum. Little-endian.
//
// An infinity or NaN among the elements never becomes a number: decoded, its own element (off,
// fp16, bf16), its block (int8, sign) or, of those top-k keeps, that or all in its block are
// infinite or NaN; top-k keeps them first. In fp16, numbers beside it may become infinite or 0.
// Without one, only a number within 0.2 % of the largest float may become infinite.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/compression.h"

namespace motley {

/// One thread at a time. Keeps nothing from one call to the next but memory, and takes more only
/// for a span longer than all before.
class Codec {
 public:
  explicit Codec(const CodecSpec& spec) : spec_(spec) {}
  virtual ~Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  const CodecSpec& spec() const { return spec_; }
  int64_t encoded_bytes(int64_t elements) const { return motley::encoded_bytes(spec_, elements); }

  /// `out` has encoded_bytes(in.size()) bytes, of any alignment.
  void encode(std::span<const float> in, std::span<std::byte> out);
  /// Overwrites `out`, of as many elements as were encoded.
  void decode(std::span<const std::byte> in, std::span<float> out);
  /// out[i] += what decode() gives.
  void decode_add(std::span<const std::byte> in, std::span<float> out);

 protected:
  // Sizes fit.
  virtual void do_encode(std::span<const float> in, std::byte* out) = 0;
  virtual void do_decode(const std::byte* in, std::span<float> out) = 0;
  virtual void do_decode_add(const std::byte* in, std::span<float> out);

 private:
  CodecSpec spec_;
  std::vector<float> decoded_;
};

/// Not of kAuto and kPowerSgd (power_sgd.h). No fault, but top-k may send more (codec_in_step()).
std::unique_ptr<Codec> make_codec(const CodecSpec& spec);

}  // namespace motley
