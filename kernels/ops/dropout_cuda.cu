#include <algorithm>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vector_access.cuh"
#include "kernels/ops/dropout_draws.h"

namespace motley::cuda {
namespace {

struct Mask {
  uint64_t seed, site;
  uint32_t threshold;
  float scale;
};

/// Draws of one block.
constexpr int kDraws = 4;

/// Elements [4·block, 4·block + N) of a sample.
template <int N>
__device__ Pack<float, N> dropped(const Mask& mask, const DropoutStream& stream, int64_t block,
                                  const Pack<float, N>& x) {
  Pack<float, N> out;
  for (int i = 0; i < N; i += kDraws) {
    const auto draws = dropout_draws(stream, static_cast<uint64_t>(block + i / kDraws));
    for (int word = 0; word < kDraws && i + word < N; ++word) {
      const bool kept = static_cast<uint32_t>(draws.word[word]) >= mask.threshold;
      out.at[i + word] = kept ? x.at[i + word] * mask.scale : 0.0f;
    }
  }
  return out;
}

struct DropShape {
  int64_t samples, elements;
};

/// Blocks along y take samples, along x packs of a sample's elements. out may be x.
template <Access kAccess, class T>
__global__ void __launch_bounds__(kBlockThreads)
    drop(Mask mask, const int64_t* position, DropShape shape, const T* all_x, T* all_out) {
  constexpr int kElements = kPack<T>;
  static_assert(kElements % kDraws == 0);
  const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t sample = blockIdx.y; sample < shape.samples; sample += gridDim.y) {
    const DropoutStream stream{mask.seed, mask.site, static_cast<uint64_t>(position[0]),
                               static_cast<uint64_t>(position[1] + sample)};
    const T* x = all_x + sample * shape.elements;
    T* out = all_out + sample * shape.elements;
    const int64_t packs = shape.elements / kElements;
    for (int64_t pack = element_index(); pack < packs; pack += threads) {
      const int64_t i = pack * kElements;
      const auto values = wide(load_pack<kAccess, kElements>(x + i));
      store_pack<kAccess>(out + i, rounded<T>(dropped(mask, stream, i / kDraws, values)));
    }
    for (int64_t i = packs * kElements + element_index() * kDraws; i < shape.elements;
         i += threads * kDraws) {
      Pack<float, kDraws> values{};
      for (int j = 0; j < kDraws && i + j < shape.elements; ++j) values.at[j] = wide(x[i + j]);
      const auto result = dropped(mask, stream, i / kDraws, values);
      for (int j = 0; j < kDraws && i + j < shape.elements; ++j) put(out + i + j, result.at[j]);
    }
  }
}

}  // namespace

template <Precision kPrecision>
void dropout(Device& device, const DropoutArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  const Mask mask{args.seed, static_cast<uint64_t>(args.site), args.threshold(),
                  static_cast<float>(1 / (1 - args.rate))};
  if (args.samples * args.elements_per_sample == 0) return;
  const auto* x = args.x.as<const T>();
  auto* out = args.out.as<T>();
  const bool vectors =
      on_16_bytes(x, out) && (args.samples == 1 || args.elements_per_sample % kPack<T> == 0);
  const dim3 blocks(blocks_in_strides(gpu, ceil_div(args.elements_per_sample, kPack<T>), 2),
                    static_cast<unsigned>(std::min<int64_t>(args.samples, kMostBlocksAlongY)));
  with_access(vectors, [&]<Access kAccess>() {
    launch(gpu, "dropout", {blocks}, drop<kAccess, T>, mask, args.position.as<const int64_t>(),
           DropShape{args.samples, args.elements_per_sample}, x, out);
  });
}

MOTLEY_IN_EACH_PRECISION(dropout, DropoutArgs);

}  // namespace motley::cuda
