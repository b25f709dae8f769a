#include "comm/element_sums.h"

#include <algorithm>
#include <cstring>

namespace motley {
namespace {

/// Fixed-point sums may wrap; an overflow is found and repeated by those who use them.
template <class T>
void sum_in_blocks(std::byte* out, std::span<const std::byte* const> terms, int64_t count) {
  constexpr int64_t kBlock = 8192 / sizeof(T);  // the sum stays in the first cache
  alignas(64) T sum[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const auto offset = static_cast<size_t>(begin) * sizeof(T);
    std::memcpy(sum, terms[0] + offset, static_cast<size_t>(n) * sizeof(T));
    for (size_t t = 1; t < terms.size(); ++t) {
      const T* const term = reinterpret_cast<const T*>(terms[t] + offset);
      for (int64_t i = 0; i < n; ++i) sum[i] += term[i];
    }
    std::memcpy(out + offset, sum, static_cast<size_t>(n) * sizeof(T));
  }
}

}  // namespace

void sum_elements(SumType type, std::byte* out, std::span<const std::byte* const> terms,
                  int64_t count) {
  switch (type) {
    case SumType::kFloat32:
      return sum_in_blocks<float>(out, terms, count);
    case SumType::kFloat64:
      return sum_in_blocks<double>(out, terms, count);
    case SumType::kInt64:
      return sum_in_blocks<uint64_t>(out, terms, count);
  }
}

}  // namespace motley
