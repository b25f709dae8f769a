#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/ops/dropout_draws.h"

namespace motley::cuda {
namespace {

struct Mask {
  uint64_t seed, site;
  uint32_t threshold;
  float scale;
};

/// One thread for each block of draws, hence for up to four elements. out may be x.
template <class T>
__global__ void drop(Mask mask, const int64_t* position, int64_t samples, int64_t elements,
                     const T* x, T* out) {
  const int64_t blocks = ceil_div(elements, 4);
  const int64_t sample = element_index() / blocks, block = element_index() % blocks;
  if (sample >= samples) return;
  const DropoutStream stream{mask.seed, mask.site, static_cast<uint64_t>(position[0]),
                             static_cast<uint64_t>(position[1] + sample)};
  const auto draws = dropout_draws(stream, static_cast<uint64_t>(block));
  for (int word = 0; word < 4 && 4 * block + word < elements; ++word) {
    const int64_t i = sample * elements + 4 * block + word;
    const bool kept = static_cast<uint32_t>(draws.word[word]) >= mask.threshold;
    put(out + i, kept ? wide(x[i]) * mask.scale : 0.0f);
  }
}

}  // namespace

template <Precision kPrecision>
void dropout(Device& device, const DropoutArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  const Mask mask{args.seed, static_cast<uint64_t>(args.site), args.threshold(),
                  static_cast<float>(1 / (1 - args.rate))};
  const int64_t threads = args.samples * ceil_div(args.elements_per_sample, 4);
  if (threads == 0) return;
  launch(gpu, "dropout", {blocks_for(threads)}, drop<T>, mask, args.position.as<const int64_t>(),
         args.samples, args.elements_per_sample, args.x.as<const T>(), args.out.as<T>());
}

MOTLEY_IN_EACH_PRECISION(dropout, DropoutArgs);

}  // namespace motley::cuda
