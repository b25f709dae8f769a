#pragma once
// What collectives add up.

#include <cstdint>

namespace motley {

enum class SumType { kFloat32, kFloat64, kInt64 };

inline int64_t bytes_of(SumType type) { return type == SumType::kFloat32 ? 4 : 8; }

}  // namespace motley
