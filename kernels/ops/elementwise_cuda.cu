#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"

namespace motley::cuda {
namespace {

// gelu(x) = x·σ(2u) with u = sqrt(2/π)(x + 0.044715x³), for (1 + tanh u)/2 = σ(2u).
constexpr float kTwiceSqrt2OverPi = 1.5957691216f;
constexpr float kCubic = 0.044715f;

__device__ float sigmoid_of_2u(float x) {
  return 1 / (1 + expf(-kTwiceSqrt2OverPi * (x + kCubic * x * x * x)));
}

__global__ void add_elements(const float* a, const float* b, float* out, int64_t count) {
  const int64_t i = element_index();
  if (i < count) out[i] = a[i] + b[i];
}

__global__ void gelu(const float* x, float* out, int64_t count) {
  const int64_t i = element_index();
  if (i < count) out[i] = x[i] * sigmoid_of_2u(x[i]);
}

__global__ void gelu_gradient(const float* x, const float* d_out, float* d_x, int64_t count) {
  const int64_t i = element_index();
  if (i >= count) return;
  const float sigmoid = sigmoid_of_2u(x[i]);
  const float slope = kTwiceSqrt2OverPi * (1 + 3 * kCubic * x[i] * x[i]);
  d_x[i] = d_out[i] * (sigmoid + x[i] * sigmoid * (1 - sigmoid) * slope);
}

__global__ void scale_elements(float* x, int64_t* overflow, int64_t count, float factor) {
  const int64_t i = element_index();
  if (i >= count) return;
  x[i] *= factor;
  if (!isfinite(x[i])) *overflow = 1;  // whoever writes, writes the same
}

}  // namespace

void add(Device& device, const AddArgs& args) {
  CudaDevice& gpu = cuda_device(device);
  if (args.count == 0) return;
  add_elements<<<blocks_for(args.count), kBlockThreads, 0, gpu.stream()>>>(
      args.a.as<const float>(), args.b.as<const float>(), args.out.as<float>(), args.count);
  gpu.check_launch("add");
}

void gelu_forward(Device& device, const GeluForwardArgs& args) {
  CudaDevice& gpu = cuda_device(device);
  if (args.count == 0) return;
  gelu<<<blocks_for(args.count), kBlockThreads, 0, gpu.stream()>>>(
      args.x.as<const float>(), args.out.as<float>(), args.count);
  gpu.check_launch("gelu");
}

void gelu_backward(Device& device, const GeluBackwardArgs& args) {
  CudaDevice& gpu = cuda_device(device);
  if (args.count == 0) return;
  gelu_gradient<<<blocks_for(args.count), kBlockThreads, 0, gpu.stream()>>>(
      args.x.as<const float>(), args.d_out.as<const float>(), args.d_x.as<float>(), args.count);
  gpu.check_launch("gelu gradient");
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

void round(Device& device, const RoundArgs& args) {
  copy(device, {.in = args.in, .out = args.out, .bytes = args.count * int64_t{sizeof(float)}});
}

void scale(Device& device, const ScaleArgs& args) {
  CudaDevice& gpu = cuda_device(device);
  if (args.count == 0) return;
  scale_elements<<<blocks_for(args.count), kBlockThreads, 0, gpu.stream()>>>(
      args.x.as<float>(), args.overflow.as<int64_t>(), args.count, static_cast<float>(args.factor));
  gpu.check_launch("scale");
}

}  // namespace motley::cuda
