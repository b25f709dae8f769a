#include "comm/element_sums.h"

#include <algorithm>
#include <cstring>

namespace motley {
namespace {

/// out = ((first + a) + b) + c; any of them may be `out` itself.
template <class T, class... Terms>
void add(T* out, int64_t n, const T* first, const Terms*... others) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = (first[i] + ... + others[i]);
}

/// Of up to four terms in one pass; more go by way of a block that stays in the first cache, since
/// `out` may be one of them. Fixed-point sums may wrap; an overflow is found and repeated by those
/// who use them.
template <class T>
void sum_in_blocks(std::byte* out, std::span<const std::byte* const> terms, int64_t count) {
  constexpr int64_t kBlock = 8192 / sizeof(T);
  alignas(64) T block[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const auto offset = static_cast<size_t>(begin) * sizeof(T);
    const auto at = [&](size_t t) { return reinterpret_cast<const T*>(terms[t] + offset); };
    const T* sum = at(0);
    size_t t = 1;
    for (; terms.size() - t > 3; t += 3, sum = block)
      add(block, n, sum, at(t), at(t + 1), at(t + 2));
    T* const to = reinterpret_cast<T*>(out + offset);
    switch (terms.size() - t) {
      case 0:
        add(to, n, sum);
        break;
      case 1:
        add(to, n, sum, at(t));
        break;
      case 2:
        add(to, n, sum, at(t), at(t + 1));
        break;
      default:
        add(to, n, sum, at(t), at(t + 1), at(t + 2));
    }
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
