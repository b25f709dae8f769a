#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/map_elements.cuh"

namespace motley::cuda {
namespace {

// gelu(x) = x·σ(2u) with u = sqrt(2/π)(x + 0.044715x³), for (1 + tanh u)/2 = σ(2u).
constexpr float kTwiceSqrt2OverPi = 1.5957691216f;
constexpr float kCubic = 0.044715f;

__device__ float sigmoid_of_2u(float x) {
  return 1 / (1 + expf(-kTwiceSqrt2OverPi * (x + kCubic * x * x * x)));
}

struct Gelu {
  __device__ float operator()(float x) const { return x * sigmoid_of_2u(x); }
};

struct GeluGradient {
  __device__ float operator()(float x, float d_out) const {
    const float sigmoid = sigmoid_of_2u(x);
    const float slope = kTwiceSqrt2OverPi * (1 + 3 * kCubic * x * x);
    return d_out * (sigmoid + x * sigmoid * (1 - sigmoid) * slope);
  }
};

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

template <Precision kPrecision>
void gelu_forward(Device& device, const GeluForwardArgs& args) {
  using T = Element<kPrecision>;
  const UnaryMap<T, T, Gelu> map{args.x.as<const T>(), args.out.as<T>(), {}};
  launch_map(cuda_device(device), "gelu", map, args.count);
}

template <Precision kPrecision>
void gelu_backward(Device& device, const GeluBackwardArgs& args) {
  using T = Element<kPrecision>;
  const BinaryMap<T, T, T, GeluGradient> map{
      args.x.as<const T>(), args.d_out.as<const T>(), args.d_x.as<T>(), {}};
  launch_map(cuda_device(device), "gelu gradient", map, args.count);
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
MOTLEY_IN_EACH_PRECISION(gelu_forward, GeluForwardArgs);
MOTLEY_IN_EACH_PRECISION(gelu_backward, GeluBackwardArgs);
MOTLEY_IN_EACH_PRECISION(round, RoundArgs);

}  // namespace motley::cuda
