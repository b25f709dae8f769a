#include "worker/engine/exact.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>

#include "worker/engine/shared_memory.h"

namespace motley {

namespace {

constexpr int kTargetBits = 36;
constexpr int kLoweredBy = 16;
constexpr int kExponentLimit = 120;  // float's own range is 2^±127
constexpr int kSquaredBits = 31;     // squares stay below 2^62
constexpr int64_t kChunk = 65536;

uint64_t absolute(int64_t value) {
  return value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
}

/// Bits that values are cut by so that their squares fit.
int cut_of(uint64_t largest) {
  return std::max(0, static_cast<int>(std::bit_width(largest)) - kSquaredBits);
}

/// body(first, last) for chunks of [0, count), merged under a lock: the order is no matter for
/// integers.
template <class T, class Body, class Merge>
T over_chunks(Device& device, size_t count, Body body, Merge merge) {
  const auto total = static_cast<int64_t>(count);
  T result{};
  std::mutex mutex;
  host_for(device, (total + kChunk - 1) / kChunk, [&](int64_t chunk) {
    const T part = body(chunk * kChunk, std::min(total, (chunk + 1) * kChunk));
    const std::lock_guard lock(mutex);
    result = merge(result, part);
  });
  return result;
}

}  // namespace

int next_exponent(int exponent, uint64_t largest) {
  if (largest == 0) return exponent;
  return std::clamp(exponent + kTargetBits - static_cast<int>(std::bit_width(largest)),
                    -kExponentLimit, kExponentLimit);
}

int lowered_exponent(int exponent) { return std::max(exponent - kLoweredBy, -kExponentLimit); }

uint64_t largest_magnitude(Device& device, std::span<const int64_t> values) {
  const auto largest_of = [&](int64_t first, int64_t last) {
    uint64_t largest = 0;
    for (int64_t i = first; i < last; ++i)
      largest = std::max(largest, absolute(values[static_cast<size_t>(i)]));
    return largest;
  };
  return over_chunks<uint64_t>(device, values.size(), largest_of,
                               [](uint64_t a, uint64_t b) { return std::max(a, b); });
}

Result<uint64_t> largest_of_all(Communicator& world, uint64_t mine) {
  // A magnitude of 2^63 does not fit a signed integer; it only ever comes from an overflow.
  auto largest = static_cast<int64_t>(std::min<uint64_t>(mine, INT64_MAX));
  MOTLEY_TRY_VOID(world.all_reduce_max(std::span(&largest, 1)));
  return static_cast<uint64_t>(largest);
}

SquareTotal squares_of(Device& device, std::span<const int64_t> values, uint64_t largest) {
  using Wide = unsigned __int128;
  const int shift = cut_of(largest);
  const auto sum_of = [&](int64_t first, int64_t last) {
    Wide sum = 0;
    for (int64_t i = first; i < last; ++i) {
      const uint64_t value = absolute(values[static_cast<size_t>(i)]) >> shift;
      sum += value * value;
    }
    return sum;
  };
  return SquareTotal(
      over_chunks<Wide>(device, values.size(), sum_of, [](Wide a, Wide b) { return a + b; }));
}

Result<Unit> SquareTotal::sum_over(Communicator& world) {
  // In limbs of 32 bits, whose sums over ranks do not overflow.
  int64_t limbs[4];
  for (int i = 0; i < 4; ++i)
    limbs[i] = static_cast<int64_t>(static_cast<uint32_t>(sum_ >> 32 * i));
  MOTLEY_TRY_VOID(world.all_reduce_sum(std::span<int64_t>(limbs)));
  sum_ = 0;
  for (int i = 0; i < 4; ++i) sum_ += static_cast<unsigned __int128>(limbs[i]) << 32 * i;
  return Unit{};
}

double SquareTotal::root(uint64_t largest) const {
  return std::ldexp(std::sqrt(static_cast<double>(sum_)), cut_of(largest));
}

}  // namespace motley
