#pragma once
// Arrays in global memory, 16 bytes at a time where they lie on 16 bytes.

#include <cstdint>
#include <cstring>

#include "kernels/cuda/element.cuh"

namespace motley::cuda {

/// How a kernel reaches its operands. Both do the same arithmetic in the same order: where operands
/// lie must not move a bit.
enum class Access { kVector, kScalar };

/// What is not read again soon need not stay in the caches.
enum class Reuse { kSoon, kNotSoon };

/// Elements in 16 bytes.
template <class T>
inline constexpr int kPack = static_cast<int>(16 / sizeof(T));

/// Neighbouring elements, in registers.
template <class T, int N>
struct Pack {
  T at[N];
};

/// The N elements from `at` on. With kVector they start on 16 bytes and fill whole vectors.
template <Access kAccess, int N, Reuse kReuse = Reuse::kSoon, class T>
__device__ Pack<T, N> load_pack(const T* at) {
  Pack<T, N> pack;
  if constexpr (kAccess == Access::kVector) {
    static_assert(N % kPack<T> == 0);
    const auto* vectors = reinterpret_cast<const uint4*>(at);
    for (int i = 0; i < N / kPack<T>; ++i) {
      const uint4 words = kReuse == Reuse::kSoon ? vectors[i] : __ldcs(vectors + i);
      memcpy(pack.at + i * kPack<T>, &words, sizeof(words));
    }
  } else {
    for (int i = 0; i < N; ++i) pack.at[i] = at[i];
  }
  return pack;
}

/// Stores them where load_pack() finds them.
template <Access kAccess, Reuse kReuse = Reuse::kSoon, class T, int N>
__device__ void store_pack(T* at, const Pack<T, N>& pack) {
  if constexpr (kAccess == Access::kVector) {
    static_assert(N % kPack<T> == 0);
    auto* vectors = reinterpret_cast<uint4*>(at);
    for (int i = 0; i < N / kPack<T>; ++i) {
      uint4 words;
      memcpy(&words, pack.at + i * kPack<T>, sizeof(words));
      if constexpr (kReuse == Reuse::kSoon)
        vectors[i] = words;
      else
        __stcs(vectors + i, words);
    }
  } else {
    for (int i = 0; i < N; ++i) at[i] = pack.at[i];
  }
}

template <class T, int N>
__device__ Pack<float, N> wide(const Pack<T, N>& pack) {
  Pack<float, N> result;
  for (int i = 0; i < N; ++i) result.at[i] = wide(pack.at[i]);
  return result;
}

template <class T, class From, int N>
__device__ Pack<T, N> rounded(const Pack<From, N>& pack) {
  Pack<T, N> result;
  if constexpr (N % 2 == 0)
    for (int i = 0; i < N; i += 2) put_pair(result.at + i, pack.at[i], pack.at[i + 1]);
  else
    for (int i = 0; i < N; ++i) put(result.at + i, pack.at[i]);
  return result;
}

/// Whether all of them start on 16 bytes; null does.
template <class... T>
bool on_16_bytes(const T*... at) {
  return ((reinterpret_cast<uintptr_t>(at) % 16 == 0) && ...);
}

/// Calls body<kAccess>(), so that kernels are made for both.
template <class Body>
void with_access(bool vectors, const Body& body) {
  if (vectors)
    body.template operator()<Access::kVector>();
  else
    body.template operator()<Access::kScalar>();
}

}  // namespace motley::cuda
