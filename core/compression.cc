#include "core/compression.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/check.h"
#include "core/spec/names.h"

namespace motley {
namespace {

constexpr int64_t kScaleBytes = sizeof(float);
constexpr int64_t kIndexBlock = int64_t{1} << 16;  // what an index of 16 bits reaches

int64_t divided_up(int64_t count, int64_t size) { return (count + size - 1) / size; }

int64_t top_k_bytes(const CodecSpec& codec, int64_t elements) {
  const int64_t kept = kept_elements(codec, elements);
  return divided_up(elements, kIndexBlock) * int64_t{sizeof(uint32_t)} +
         kept * int64_t{sizeof(uint16_t)} + encoded_bytes(codec_of_values(codec.values), kept);
}

std::string percent(double fraction) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g%%", fraction * 100);
  return text;
}

std::string out_of_range(const std::string& key, const std::string& range) {
  return "'" + key + "' must be from " + range;
}

constexpr int kUsualWarmup = 150;

/// What top-k sends in the first step after the warm-up.
constexpr double kFirstFraction = 0.25;

}  // namespace

int warmup_steps(const CodecSpec& codec) {
  return codec.warmup.value_or(hides_magnitudes(codec.kind) ? kUsualWarmup : 0);
}

CodecSpec codec_in_step(const CodecSpec& codec, int64_t step) {
  const int64_t warmup = warmup_steps(codec);
  if (step <= warmup) return {};
  CodecSpec now = codec;
  if (codec.kind != CodecKind::kTopK || step >= 3 * warmup) return now;
  const double done = static_cast<double>(step - warmup) / static_cast<double>(2 * warmup);
  now.fraction = std::clamp(kFirstFraction * std::pow(codec.fraction / kFirstFraction, done),
                            codec.fraction, kFirstFraction);
  return now;
}

std::optional<CodecFault> first_fault(const CodecSpec& codec) {
  const CodecSpec defaults;
  if (codec.warmup && (*codec.warmup < 0 || *codec.warmup > CodecSpec::kMostWarmup))
    return CodecFault{"warmup", out_of_range("warmup", "0 to 1000000000 steps")};
  const std::string none = "' is of no use: " + spec_name(codec.kind) + " has none";
  if (!has_warmup(codec.kind) && codec.warmup) return CodecFault{"warmup", "'warmup" + none};
  if (!has_fraction(codec.kind) && codec.fraction != defaults.fraction)
    return CodecFault{"fraction", "'fraction" + none};
  if (!has_rank(codec.kind) && codec.rank != defaults.rank)
    return CodecFault{"rank", "'rank" + none};
  if (!has_values(codec.kind) && codec.values != defaults.values)
    return CodecFault{"values", "'values" + none};
  if (!(codec.fraction >= CodecSpec::kLeastFraction && codec.fraction <= CodecSpec::kMostFraction))
    return CodecFault{"fraction", out_of_range("fraction", "0.01 to 0.1")};
  if (codec.rank < CodecSpec::kLeastRank || codec.rank > CodecSpec::kMostRank)
    return CodecFault{"rank", out_of_range("rank", "1 to " + std::to_string(CodecSpec::kMostRank))};
  if (codec.kind == CodecKind::kPowerSgd && codec.values == CodecValues::kInt8)
    return CodecFault{"values",
                      "'values' of power_sgd are fp32, fp16 or bf16: its factors are "
                      "summed, which a scale for each block does not allow"};
  return std::nullopt;
}

std::string to_text(const CodecSpec& codec) {
  std::string text = spec_name(codec.kind);
  if (has_fraction(codec.kind)) text += " " + percent(codec.fraction);
  if (has_rank(codec.kind)) text += " of rank " + std::to_string(codec.rank);
  if (has_values(codec.kind) && codec.values != CodecValues::kFp32)
    text += " in " + spec_name(codec.values);
  if (codec.warmup) text += " after " + std::to_string(*codec.warmup) + " steps";
  return text;
}

CodecSpec codec_of_values(CodecValues values) {
  CodecSpec codec;
  switch (values) {
    case CodecValues::kFp32:
      codec.kind = CodecKind::kOff;
      break;
    case CodecValues::kFp16:
      codec.kind = CodecKind::kFp16;
      break;
    case CodecValues::kBf16:
      codec.kind = CodecKind::kBf16;
      break;
    case CodecValues::kInt8:
      codec.kind = CodecKind::kInt8;
      break;
  }
  return codec;
}

int64_t kept_elements(const CodecSpec& codec, int64_t elements) {
  const int64_t kept = std::llround(codec.fraction * static_cast<double>(elements));
  return std::clamp<int64_t>(kept, std::min<int64_t>(1, elements), elements);
}

int64_t encoded_bytes(const CodecSpec& codec, int64_t elements) {
  MOTLEY_CHECK_LE(0, elements);
  const int64_t blocks = divided_up(elements, CodecSpec::kBlock);
  switch (codec.kind) {
    case CodecKind::kOff:
      return elements * int64_t{sizeof(float)};
    case CodecKind::kFp16:
      return elements * 2 + (elements > 0 ? kScaleBytes : 0);
    case CodecKind::kBf16:
      return elements * 2;
    case CodecKind::kInt8:
      return elements + blocks * kScaleBytes;
    case CodecKind::kSign:  // whole blocks have whole bytes
      return divided_up(elements, 8) + blocks * kScaleBytes;
    case CodecKind::kTopK:
      return top_k_bytes(codec, elements);
    case CodecKind::kAuto:
    case CodecKind::kPowerSgd:
      break;
  }
  MOTLEY_CHECK(false, "no codec of a span of floats: " + to_text(codec));
  return 0;
}

std::optional<MatrixShape> matrix_for_power_sgd(std::span<const int64_t> shape, int rank) {
  if (shape.size() < 2) return std::nullopt;
  MatrixShape matrix{1, shape.back()};
  for (const int64_t extent : shape.first(shape.size() - 1)) matrix.rows *= extent;
  if (matrix.rows * matrix.columns <= rank * (matrix.rows + matrix.columns)) return std::nullopt;
  return matrix;
}

int power_sgd_rank(const CodecSpec& codec, const MatrixShape& matrix) {
  return static_cast<int>(std::min<int64_t>({codec.rank, matrix.rows, matrix.columns}));
}

int64_t power_sgd_bytes(const CodecSpec& codec, const MatrixShape& matrix) {
  FactorElements one;
  one.add(codec, matrix);
  const CodecSpec values = codec_of_values(codec.values);
  return encoded_bytes(values, one.p) + encoded_bytes(values, one.q);
}

void FactorElements::add(const CodecSpec& codec, const MatrixShape& matrix) {
  const int64_t rank = power_sgd_rank(codec, matrix);
  matrices += matrix.rows * matrix.columns;
  p += matrix.rows * rank;
  q += matrix.columns * rank;
  columns += matrix.columns;
}

}  // namespace motley
