#pragma once
// What collectives add up.

#include <cstdint>
#include <type_traits>

namespace motley {

enum class SumType { kFloat32, kFloat64, kInt64 };

inline int64_t bytes_of(SumType type) { return type == SumType::kFloat32 ? 4 : 8; }

template <class T>
constexpr SumType sum_type_of() {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double> ||
                std::is_same_v<T, int64_t>);
  return std::is_same_v<T, float>    ? SumType::kFloat32
         : std::is_same_v<T, double> ? SumType::kFloat64
                                     : SumType::kInt64;
}

}  // namespace motley
