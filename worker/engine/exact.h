#pragma once
// Arithmetic of numerics: exact (DESIGN.md §1.4): fixed-point gradients are x · 2^exponent as
// int64. Everything here is integers or depends only on them, so that any slicing gives the same
// bits.

#include <cstdint>
#include <span>

#include "comm/communicator.h"
#include "kernels/device.h"

namespace motley {

/// Before the first step. A grain's gradients may reach 2^18 (contributions stay below 2^42), room
/// for 2^14 tokens of gradients of 16 each; the resolution of 2^-24 is what fp32 gives a gradient
/// of 1.
inline constexpr int kFirstExactExponent = 24;

/// The exponent after a step whose largest summed gradient was `largest` in fixed point: brings it
/// to 2^36. That keeps 24 bits of gradients 2^12 times smaller, and leaves room for a grain of the
/// next step to be 2^6 times larger.
int next_exponent(int exponent, uint64_t largest);

/// After an overflow: the same step is repeated with this one.
int lowered_exponent(int exponent);

/// max |values[i]|.
uint64_t largest_magnitude(Device& device, std::span<const int64_t> values);

/// The largest of all ranks.
Result<uint64_t> largest_of_all(Communicator& world, uint64_t mine);

/// Σ values[i]², each value cut to its leading 31 bits below the largest of the whole gradient:
/// integers, so that neither order nor slicing matters.
class SquareTotal {
 public:
  SquareTotal() = default;
  explicit SquareTotal(unsigned __int128 sum) : sum_(sum) {}
  SquareTotal& operator+=(SquareTotal other) {
    sum_ += other.sum_;
    return *this;
  }
  /// Collective.
  Result<Unit> sum_over(Communicator& world);
  /// sqrt of the sum, in units of the values.
  double root(uint64_t largest) const;

 private:
  unsigned __int128 sum_ = 0;
};
SquareTotal squares_of(Device& device, std::span<const int64_t> values, uint64_t largest);

}  // namespace motley
