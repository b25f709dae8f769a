#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace motley::cuda {
namespace {

// gelu(x) = x·σ(2u) with u = sqrt(2/π)(x + 0.044715x³), for (1 + tanh u)/2 = σ(2u).
constexpr float kTwiceSqrt2OverPi = 1.5957691216f;
constexpr float kCubic = 0.044715f;

__device__ float sigmoid_of_2u(float x) {
  return 1 / (1 + expf(-kTwiceSqrt2OverPi * (x + kCubic * x * x * x)));
}

template <class T>
__global__ void add_elements(const T* a, const T* b, T* out, int64_t count) {
  const int64_t i = element_index();
  if (i < count) put(out + i, wide(a[i]) + wide(b[i]));
}

template <class T>
__global__ void gelu(const T* x, T* out, int64_t count) {
  const int64_t i = element_index();
  if (i < count) put(out + i, wide(x[i]) * sigmoid_of_2u(wide(x[i])));
}

template <class T>
__global__ void gelu_gradient(const T* x, const T* d_out, T* d_x, int64_t count) {
  const int64_t i = element_index();
  if (i >= count) return;
  const float value = wide(x[i]);
  const float sigmoid = sigmoid_of_2u(value);
  const float slope = kTwiceSqrt2OverPi * (1 + 3 * kCubic * value * value);
  put(d_x + i, wide(d_out[i]) * (sigmoid + value * sigmoid * (1 - sigmoid) * slope));
}

template <class T>
__global__ void round_elements(const float* in, T* out, int64_t count) {
  const int64_t i = element_index();
  if (i < count) put(out + i, in[i]);
}

__global__ void scale_elements(float* x, int64_t* overflow, int64_t count, float factor) {
  const int64_t i = element_index();
  if (i >= count) return;
  x[i] *= factor;
  if (!isfinite(x[i])) *overflow = 1;  // whoever writes, writes the same
}

}  // namespace

template <Precision kPrecision>
void add(Device& device, const AddArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  if (args.count == 0) return;
  launch(gpu, "add", {blocks_for(args.count)}, add_elements<T>, args.a.as<const T>(),
         args.b.as<const T>(), args.out.as<T>(), args.count);
}

template <Precision kPrecision>
void gelu_forward(Device& device, const GeluForwardArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  if (args.count == 0) return;
  launch(gpu, "gelu", {blocks_for(args.count)}, gelu<T>, args.x.as<const T>(), args.out.as<T>(),
         args.count);
}

template <Precision kPrecision>
void gelu_backward(Device& device, const GeluBackwardArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  if (args.count == 0) return;
  launch(gpu, "gelu gradient", {blocks_for(args.count)}, gelu_gradient<T>, args.x.as<const T>(),
         args.d_out.as<const T>(), args.d_x.as<T>(), args.count);
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
  CudaDevice& gpu = cuda_device(device);
  if (args.count == 0) return;
  launch(gpu, "round", {blocks_for(args.count)}, round_elements<T>, args.in.as<const float>(),
         args.out.as<T>(), args.count);
}

void scale(Device& device, const ScaleArgs& args) {
  CudaDevice& gpu = cuda_device(device);
  if (args.count == 0) return;
  launch(gpu, "scale", {blocks_for(args.count)}, scale_elements, args.x.as<float>(),
         args.overflow.as<int64_t>(), args.count, static_cast<float>(args.factor));
}

MOTLEY_IN_EACH_PRECISION(add, AddArgs);
MOTLEY_IN_EACH_PRECISION(gelu_forward, GeluForwardArgs);
MOTLEY_IN_EACH_PRECISION(gelu_backward, GeluBackwardArgs);
MOTLEY_IN_EACH_PRECISION(round, RoundArgs);

}  // namespace motley::cuda
