#include "comm/compression/error_feedback.h"

#include "core/check.h"

namespace motley {

ErrorFeedback::ErrorFeedback(const CodecSpec& codec, std::span<float> residual)
    : codec_(make_codec(codec)), residual_(residual) {}

void ErrorFeedback::set_codec(const CodecSpec& codec) {
  if (codec != codec_->spec()) codec_ = make_codec(codec);
}

void ErrorFeedback::compress(int64_t begin, std::span<float> chunk, std::span<std::byte> out) {
  MOTLEY_CHECK_LE(0, begin);
  MOTLEY_CHECK_LE(begin + std::ssize(chunk), std::ssize(residual_));
  const std::span<float> residual = residual_.subspan(static_cast<size_t>(begin), chunk.size());
  if (wanted_.size() < chunk.size()) wanted_.resize(chunk.size());
  const std::span<float> wanted = std::span(wanted_).first(chunk.size());
  for (size_t i = 0; i < chunk.size(); ++i) wanted[i] = chunk[i] + residual[i];
  codec_->encode(wanted, out);
  codec_->decode(out, chunk);
  keep_what_was_lost(wanted, chunk, residual);
}

void keep_what_was_lost(std::span<const float> wanted, std::span<const float> sent,
                        std::span<float> residual) {
  for (size_t i = 0; i < residual.size(); ++i) {
    const float lost = wanted[i] - sent[i];
    residual[i] = lost - lost == 0 ? lost : residual[i];
  }
}

}  // namespace motley
