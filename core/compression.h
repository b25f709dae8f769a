#pragma once
// What is done to gradients before they cross a slow link, as a value of jobs and plans. The codecs
// themselves: comm/compression/. Sizes are known here, so that planner and both ends of a link
// agree on them before anything is sent.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace motley {

/// kAuto only in a job: it leaves the choice to the planner.
enum class CodecKind { kOff, kAuto, kFp16, kBf16, kInt8, kSign, kTopK, kPowerSgd };

/// Whether it is for spans of floats, whatever they are; kPowerSgd is for matrices.
constexpr bool encodes_spans(CodecKind kind) {
  return kind != CodecKind::kOff && kind != CodecKind::kAuto && kind != CodecKind::kPowerSgd;
}

/// In which top-k sends its values and PowerSGD its factors; of these, kInt8 only top-k.
enum class CodecValues { kFp32, kFp16, kBf16, kInt8 };

struct CodecSpec {
  CodecKind kind = CodecKind::kOff;
  double fraction = 0.01;                   ///< of kTopK: how many of the elements are sent
  int rank = 2;                             ///< of kPowerSgd
  CodecValues values = CodecValues::kFp32;  ///< of kTopK and kPowerSgd
  std::optional<int> warmup = {};           ///< unset: warmup_steps() knows
  bool operator==(const CodecSpec&) const = default;

  static constexpr double kLeastFraction = 0.01, kMostFraction = 0.10;
  static constexpr int kLeastRank = 1, kMostRank = 4;
  static constexpr int kMostWarmup = 1'000'000'000;
  static constexpr int64_t kBlock = 256;  ///< elements that share a scale in kInt8 and kSign
};

/// Which members count besides `kind`. Those that do not have their defaults.
constexpr bool has_fraction(CodecKind kind) { return kind == CodecKind::kTopK; }
constexpr bool has_rank(CodecKind kind) { return kind == CodecKind::kPowerSgd; }
constexpr bool has_warmup(CodecKind kind) {
  return kind != CodecKind::kOff && kind != CodecKind::kPowerSgd;
}
constexpr bool has_values(CodecKind kind) { return has_fraction(kind) || has_rank(kind); }

/// Of how many steps sums are not compressed, from the first.
int warmup_steps(const CodecSpec& codec);

/// What serves in step `step`, from 1: off during the warm-up; from then on the codec, of which
/// top-k begins with a quarter and sends less by and by until, twice as many steps later, it
/// sends its fraction (Lin et al. 2018). Follows from the step alone, so that a resumed training is
/// where it was.
CodecSpec codec_in_step(const CodecSpec& codec, int64_t step);

/// Whether what is received says little of a gradient's size: of one element that comes all at once
/// after many steps, or with its neighbours' mean magnitude. Optimizers hold what they have learnt
/// of sizes in the warm-up then, after which a step is linear in gradients and error feedback makes
/// up for what was lost (1-bit Adam, Tang et al. 2021).
constexpr bool hides_magnitudes(CodecKind kind) {
  return kind == CodecKind::kSign || kind == CodecKind::kTopK;
}

/// A member out of its range, or one that counts for nothing in this kind.
struct CodecFault {
  const char* key;  ///< "fraction"
  std::string what;
};
std::optional<CodecFault> first_fault(const CodecSpec& codec);

/// For people: "int8", "top_k 1% in fp16", "power_sgd of rank 2", "sign after 50 steps" (where the
/// warm-up is set).
std::string to_text(const CodecSpec& codec);

/// What sends the values of top-k or the factors of PowerSGD; kOff sends floats as they are.
CodecSpec codec_of_values(CodecValues values);

/// Of `elements`, how many top-k sends: the fraction, rounded, but at least one if there is any.
int64_t kept_elements(const CodecSpec& codec, int64_t elements);

/// Bytes of so many floats once encoded in one piece, exactly. Not of kAuto, nor of kPowerSgd,
/// which is for matrices.
int64_t encoded_bytes(const CodecSpec& codec, int64_t elements);

/// A tensor as PowerSGD sees it.
struct MatrixShape {
  int64_t rows = 0, columns = 0;
  bool operator==(const MatrixShape&) const = default;
};

/// All dimensions but the last are rows. Nothing for what is better sent as it is: a vector, or a
/// tensor with no more elements than its factors of this rank.
std::optional<MatrixShape> matrix_for_power_sgd(std::span<const int64_t> shape, int rank);

/// Columns of the factors: the rank, where the matrix has it.
int power_sgd_rank(const CodecSpec& codec, const MatrixShape& matrix);

/// Bytes that one rank contributes to the sums of both factors.
int64_t power_sgd_bytes(const CodecSpec& codec, const MatrixShape& matrix);

/// Elements of tensors that are summed as two factors, all together.
struct FactorElements {
  int64_t matrices = 0;
  int64_t p = 0, q = 0;
  int64_t columns = 0;

  void add(const CodecSpec& codec, const MatrixShape& matrix);
};

}  // namespace motley
