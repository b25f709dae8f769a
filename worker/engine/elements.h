#pragma once
// Numbers in host memory, stored in any precision.

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/precision.h"

namespace motley {

/// A view of numbers of one precision (kAuto is none).
class Elements {
 public:
  Elements(std::span<std::byte> bytes, Precision stored) : bytes_(bytes), stored_(stored) {}

  double get(int64_t index) const;
  void set(int64_t index, double value);
  int64_t count() const { return static_cast<int64_t>(bytes_.size()) / reduced_bytes(stored_); }

 private:
  std::span<std::byte> bytes_;
  Precision stored_;
};

/// All of `stored`, numbers of a reduced precision, as floats, and back: as Elements does it one by
/// one.
void widen_elements(std::span<const std::byte> stored, Precision precision, std::span<float> wide);
void round_elements(std::span<const float> wide, Precision precision, std::span<std::byte> stored);

/// Turns the numbers that fill the end of `bytes` into numbers that fill its beginning, from one
/// precision into another; `bytes` are those of the wider. Returns the result.
std::span<std::byte> convert_in_place(std::span<std::byte> bytes, Precision from, Precision to);

}  // namespace motley
