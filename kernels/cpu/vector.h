#pragma once
// Eight floats at a time, with tails computed by the same instructions as the rest, and sums in an
// order that depends on the length alone. Only for files compiled with the kernels' instruction
// set; everything here is inline and has no other linkage.

#include <cstdint>
#include <cstring>

namespace motley::cpu {
namespace {

inline constexpr int kLanes = 8;
using Float8 = float __attribute__((vector_size(kLanes * sizeof(float))));
using Int8 = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));

[[maybe_unused]] inline Float8 broadcast(float x) { return Float8{} + x; }

/// The first `lanes` lanes from p, the others 0.
[[maybe_unused]] inline Float8 load(const float* p, int64_t lanes = kLanes) {
  Float8 v{};
  if (lanes == kLanes)
    std::memcpy(&v, p, sizeof v);
  else
    std::memcpy(&v, p, static_cast<size_t>(lanes) * sizeof(float));
  return v;
}

[[maybe_unused]] inline void store(float* p, Float8 v, int64_t lanes = kLanes) {
  if (lanes == kLanes)
    std::memcpy(p, &v, sizeof v);
  else
    std::memcpy(p, &v, static_cast<size_t>(lanes) * sizeof(float));
}

/// v with `filler` from lane `lanes` on.
[[maybe_unused]] inline Float8 keep(Float8 v, int64_t lanes, float filler) {
  constexpr Int8 kIndex = {0, 1, 2, 3, 4, 5, 6, 7};
  return kIndex < static_cast<int32_t>(lanes) ? v : broadcast(filler);
}

[[maybe_unused]] inline Float8 max(Float8 a, Float8 b) { return a > b ? a : b; }

/// Calls body(i, lanes) for i = 0, 8, 16 ...; lanes is 8 but for the last call.
template <class Body>
inline void for_lanes(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, n - i);
}

/// Combines term(i, lanes), i = 0, 8, 16 ..., with a function of two vectors; `neutral` is its
/// neutral element. Four chains side by side, joined at the end.
template <class Term, class Combine>
inline float reduce_lanes(int64_t n, float neutral, Term&& term, Combine&& combine) {
  Float8 chain[4];
  for (Float8& c : chain) c = broadcast(neutral);
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) chain[j] = combine(chain[j], term(i + j * kLanes, int64_t{kLanes}));
  for (int j = 0; i < n; i += kLanes, ++j) {
    const int64_t lanes = n - i < kLanes ? n - i : kLanes;
    chain[j] = combine(chain[j], keep(term(i, lanes), lanes, neutral));
  }
  Float8 v = combine(combine(chain[0], chain[1]), combine(chain[2], chain[3]));
  v = combine(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3));
  v = combine(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5));
  v = combine(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6));
  return v[0];
}

template <class Term>
inline float sum_lanes(int64_t n, Term&& term) {
  return reduce_lanes(n, 0, term, [](Float8 a, Float8 b) { return a + b; });
}

}  // namespace
}  // namespace motley::cpu
