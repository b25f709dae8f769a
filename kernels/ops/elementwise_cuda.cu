#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/map_elements.cuh"

namespace motley::cuda {
namespace {

struct Round {
  __device__ float operator()(float x) const { return x; }
};

struct Scale {
  float factor;
  int64_t* overflow;
  __device__ float operator()(float x) const {
    x *= factor;
    if (!isfinite(x)) *overflow = 1;  // whoever writes, writes the same
    return x;
  }
};

}  // namespace

template <Precision kPrecision>
void add(Device& device, const AddArgs& args) {
  using T = Element<kPrecision>;
  const BinaryMap<T, T, T, SumOf> map{
      args.a.as<const T>(), args.b.as<const T>(), args.out.as<T>(), {}};
  launch_map(cuda_device(device), "add", map, args.count);
}

void zero(Device& device, const ZeroArgs& args) {
  CudaDevice& gpu = cuda_device(device);
  if (args.bytes == 0) return;
  gpu.check(cudaMemsetAsync(args.out.as<void>(), 0, static_cast<size_t>(args.bytes), gpu.stream()),
            "zero");
}

void copy(Device& device, const CopyArgs& args) {
  CudaDevice& gpu = cuda_device(device);
  if (args.bytes == 0) return;
  gpu.check(cudaMemcpyAsync(args.out.as<void>(), args.in.as<const void>(),
                            static_cast<size_t>(args.bytes), cudaMemcpyDefault, gpu.stream()),
            "copy");
}

template <Precision kPrecision>
void round(Device& device, const RoundArgs& args) {
  using T = Element<kPrecision>;
  const UnaryMap<float, T, Round, Reuse::kNotSoon> map{
      args.in.as<const float>(), args.out.as<T>(), {}};
  launch_map(cuda_device(device), "round", map, args.count);
}

void scale(Device& device, const ScaleArgs& args) {
  const Scale function{static_cast<float>(args.factor), args.overflow.as<int64_t>()};
  const UnaryMap<float, float, Scale> map{args.x.as<const float>(), args.x.as<float>(), function};
  launch_map(cuda_device(device), "scale", map, args.count);
}

MOTLEY_IN_EACH_PRECISION(add, AddArgs);
MOTLEY_IN_EACH_PRECISION(round, RoundArgs);

}  // namespace motley::cuda
