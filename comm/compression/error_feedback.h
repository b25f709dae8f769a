#pragma once
// What a codec loses is kept and added to the gradient of the next step, so that in time everything
// is sent (Seide et al. 2014; Stich et al. 2018; Karimireddy et al. 2019).

#include "comm/compression/codec.h"

namespace motley {

/// The residuals of a flat range of gradients that is compressed chunk by chunk. One thread.
class ErrorFeedback {
 public:
  /// `residual` is borrowed: memory is planned by whoever has it, and so are checkpoints. 0 at the
  /// start of a training. Chunks may be of any length; memory for one is taken once.
  ErrorFeedback(const CodecSpec& codec, std::span<float> residual);

  /// The chunk of the range that starts at `begin`: with x[i] = chunk[i] + residual[i], `out`
  /// becomes x encoded, `chunk` what everyone decodes from it, and the residual x - chunk, rounded
  /// once:
  ///
  ///     |chunk[i] + residual[i] - x[i]| <= 2^-24·|residual[i]|,
  ///
  /// which is 0 for off, fp16, bf16 and top_k with values in these. `out` has
  /// codec().encoded_bytes(chunk.size()) bytes.
  ///
  /// Where x - chunk is infinite or NaN the residual stays what it was: the others learn that a
  /// gradient was not finite, and the next step does not start from it.
  void compress(int64_t begin, std::span<float> chunk, std::span<std::byte> out);

  Codec& codec() { return *codec_; }
  /// For what is compressed from now on; residuals stay.
  void set_codec(const CodecSpec& codec);
  std::span<float> residual() { return residual_; }

 private:
  std::unique_ptr<Codec> codec_;
  std::span<float> residual_;
  std::vector<float> wanted_;
};

/// residual[i] = wanted[i] - sent[i] where that is finite.
void keep_what_was_lost(std::span<const float> wanted, std::span<const float> sent,
                        std::span<float> residual);

}  // namespace motley
