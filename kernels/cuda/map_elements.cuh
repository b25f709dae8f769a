#pragma once
// out[i] = function(in[i]) over whole arrays, at the speed of memory.

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vector_access.cuh"

namespace motley::cuda {

/// out[i] = function(in[i]); out may be in. The function gets floats, of int64_t itself.
template <class In, class Out, class Function, Reuse kReuse = Reuse::kSoon>
struct UnaryMap {
  const In* in;
  Out* out;
  Function function;

  static constexpr int kElements = std::max(kPack<In>, kPack<Out>);
  bool on_vectors() const { return on_16_bytes(in, out); }
  template <Access kAccess, int N>
  __device__ Pack<In, N> read(int64_t i) const {
    return load_pack<kAccess, N, kReuse>(in + i);
  }
  template <Access kAccess, int N>
  __device__ void write(int64_t i, const Pack<In, N>& read) const {
    Pack<decltype(function(wide(read.at[0]))), N> result;
    for (int j = 0; j < N; ++j) result.at[j] = function(wide(read.at[j]));
    store_pack<kAccess>(out + i, rounded<Out>(result));
  }
};

/// out[i] = function(a[i], b[i]); out may be a or b. The function gets floats, of int64_t itself.
/// kReuse: of a.
template <class A, class B, class Out, class Function, Reuse kReuse = Reuse::kSoon>
struct BinaryMap {
  const A* a;
  const B* b;
  Out* out;
  Function function;

  template <int N>
  struct Operands {
    Pack<A, N> a;
    Pack<B, N> b;
  };
  static constexpr int kElements = std::max({kPack<A>, kPack<B>, kPack<Out>});
  bool on_vectors() const { return on_16_bytes(a, b, out); }
  template <Access kAccess, int N>
  __device__ Operands<N> read(int64_t i) const {
    return {load_pack<kAccess, N, kReuse>(a + i), load_pack<kAccess, N>(b + i)};
  }
  template <Access kAccess, int N>
  __device__ void write(int64_t i, const Operands<N>& read) const {
    Pack<decltype(function(wide(read.a.at[0]), wide(read.b.at[0]))), N> result;
    for (int j = 0; j < N; ++j) result.at[j] = function(wide(read.a.at[j]), wide(read.b.at[j]));
    store_pack<kAccess>(out + i, rounded<Out>(result));
  }
};

/// Packs whose loads a thread has under way at a time.
inline constexpr int kPacksAtOnce = 2;

template <Access kAccess, class Map>
__global__ void __launch_bounds__(kBlockThreads) map_elements(Map map, int64_t count) {
  constexpr int kElements = Map::kElements;
  using Read = decltype(map.template read<kAccess, kElements>(0));
  const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t packs = count / kElements;
  int64_t pack = element_index();
  for (; pack + (kPacksAtOnce - 1) * threads < packs; pack += kPacksAtOnce * threads) {
    Read read[kPacksAtOnce];
    for (int i = 0; i < kPacksAtOnce; ++i)
      read[i] = map.template read<kAccess, kElements>((pack + i * threads) * kElements);
    for (int i = 0; i < kPacksAtOnce; ++i)
      map.template write<kAccess, kElements>((pack + i * threads) * kElements, read[i]);
  }
  for (; pack < packs; pack += threads)
    map.template write<kAccess, kElements>(pack * kElements,
                                           map.template read<kAccess, kElements>(pack * kElements));
  for (int64_t i = packs * kElements + element_index(); i < count; i += threads)
    map.template write<Access::kScalar, 1>(i, map.template read<Access::kScalar, 1>(i));
}

template <class Map>
void launch_map(CudaDevice& gpu, const char* what, const Map& map, int64_t count) {
  if (count == 0) return;
  const unsigned blocks = blocks_in_strides(gpu, ceil_div(count, Map::kElements), kPacksAtOnce);
  with_access(map.on_vectors(), [&]<Access kAccess>() {
    launch(gpu, what, {blocks}, map_elements<kAccess, Map>, map, count);
  });
}

}  // namespace motley::cuda
