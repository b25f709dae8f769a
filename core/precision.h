#pragma once
// What numbers are computed in. Weights, sums and statistics stay in full precision, 4 bytes (8 for
// fp64); activations and the copies of the weights that products read are in the computing one
// (mixed precision, Micikevicius et al. 2018). TensorFloat-32 is full precision whose products of
// matrices round their factors to 10 bits of mantissa and sum in fp32; fp8 is bf16 but for the
// factors of products in blocks, which are in 8 bits (Micikevicius et al. 2022).

namespace motley {

/// kAuto only in a job: it leaves the choice to the device.
enum class Precision { kAuto, kFp32, kFp64, kBf16, kFp16, kTf32, kFp8 };

/// Bytes of an element of weights, gradients, optimizer state, sums and statistics.
constexpr int full_bytes(Precision precision) { return precision == Precision::kFp64 ? 8 : 4; }

/// In which weights are kept.
constexpr Precision full_precision(Precision precision) {
  return precision == Precision::kFp64 ? Precision::kFp64 : Precision::kFp32;
}

/// Whether activations are stored in fewer bytes than weights.
constexpr bool is_reduced(Precision precision) {
  return precision == Precision::kBf16 || precision == Precision::kFp16 ||
         precision == Precision::kFp8;
}

/// In which activations are stored.
constexpr Precision stored_precision(Precision precision) {
  return precision == Precision::kFp8 ? Precision::kBf16 : precision;
}

/// Bytes of an element of activations.
constexpr int reduced_bytes(Precision precision) {
  return is_reduced(precision) ? 2 : full_bytes(precision);
}

/// In which activations travel from a device to one that computes in another precision: the one of
/// fewer bytes.
constexpr Precision carried(Precision from, Precision to) { return is_reduced(from) ? from : to; }

}  // namespace motley
