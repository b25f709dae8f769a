#pragma once
// Strong integers: a rank cannot be passed where a count of bytes is meant.

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>

namespace motley {

/// An identifier: comparable, hashable, printable, no arithmetic.
template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(int value) : value_(value) {}
  constexpr int value() const { return value_; }
  constexpr auto operator<=>(const Id&) const = default;
  friend std::ostream& operator<<(std::ostream& out, Id id) { return out << id.value_; }

 private:
  int value_ = -1;
};

/// A quantity in a fixed unit: adds, subtracts, scales, compares.
template <class Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(int64_t value) : value_(value) {}
  constexpr int64_t value() const { return value_; }
  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator+(Quantity other) const { return Quantity(value_ + other.value_); }
  constexpr Quantity operator-(Quantity other) const { return Quantity(value_ - other.value_); }
  constexpr Quantity operator*(int64_t factor) const { return Quantity(value_ * factor); }
  constexpr Quantity& operator+=(Quantity other) {
    value_ += other.value_;
    return *this;
  }
  friend std::ostream& operator<<(std::ostream& out, Quantity q) { return out << q.value_; }

 private:
  int64_t value_ = 0;
};

using Rank = Id<struct RankTag>;    ///< position in an attempt's world, from 0
using Epoch = Id<struct EpochTag>;  ///< number of an attempt within a run, from 1; never reused
using Bytes = Quantity<struct BytesTag>;
using Nanos = Quantity<struct NanosTag>;  ///< durations; simulated time is exact in them

constexpr double seconds_of(Nanos t) { return static_cast<double>(t.value()) * 1e-9; }
constexpr Nanos nanos_of_seconds(double seconds) {
  return Nanos(static_cast<int64_t>(seconds * 1e9 + (seconds < 0 ? -0.5 : 0.5)));
}

}  // namespace motley

template <class Tag>
struct std::hash<motley::Id<Tag>> {
  size_t operator()(motley::Id<Tag> id) const noexcept { return std::hash<int>()(id.value()); }
};
