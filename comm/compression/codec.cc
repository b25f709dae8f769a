#include "comm/compression/codec.h"

#include <algorithm>

#include "comm/compression/block_codecs.h"
#include "comm/compression/cast_codecs.h"
#include "comm/compression/top_k.h"
#include "core/check.h"

namespace motley {

void Codec::encode(std::span<const float> in, std::span<std::byte> out) {
  MOTLEY_CHECK_EQ(std::ssize(out), encoded_bytes(std::ssize(in)));
  if (!in.empty()) do_encode(in, out.data());
}

void Codec::decode(std::span<const std::byte> in, std::span<float> out) {
  MOTLEY_CHECK_EQ(std::ssize(in), encoded_bytes(std::ssize(out)));
  if (!out.empty()) do_decode(in.data(), out);
}

void Codec::decode_add(std::span<const std::byte> in, std::span<float> out) {
  MOTLEY_CHECK_EQ(std::ssize(in), encoded_bytes(std::ssize(out)));
  if (!out.empty()) do_decode_add(in.data(), out);
}

void Codec::do_decode_add(const std::byte* in, std::span<float> out) {
  if (decoded_.size() < out.size()) decoded_.resize(out.size());
  do_decode(in, std::span(decoded_).first(out.size()));
  const float* decoded = decoded_.data();
  for (size_t i = 0; i < out.size(); ++i) out[i] += decoded[i];
}

std::unique_ptr<Codec> make_codec(const CodecSpec& spec) {
  CodecSpec of_a_job = spec;
  of_a_job.fraction = std::min(spec.fraction, CodecSpec::kMostFraction);
  const std::optional<CodecFault> fault = first_fault(of_a_job);
  MOTLEY_CHECK(!fault, fault ? fault->what : "");
  switch (spec.kind) {
    case CodecKind::kOff:
      return std::make_unique<PlainCodec>();
    case CodecKind::kFp16:
      return std::make_unique<Fp16Codec>();
    case CodecKind::kBf16:
      return std::make_unique<Bf16Codec>();
    case CodecKind::kInt8:
      return std::make_unique<Int8Codec>();
    case CodecKind::kSign:
      return std::make_unique<SignCodec>();
    case CodecKind::kTopK:
      return std::make_unique<TopKCodec>(spec);
    case CodecKind::kAuto:
    case CodecKind::kPowerSgd:
      break;
  }
  MOTLEY_CHECK(false, "no codec of a span of floats: " + to_text(spec));
  return nullptr;
}

}  // namespace motley
