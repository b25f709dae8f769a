#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace motley::cuda {
namespace {

template <class T>
__global__ void add_elements(const T* a, const T* b, T* out, int64_t count) {
  const int64_t i = element_index();
  if (i < count) put(out + i, wide(a[i]) + wide(b[i]));
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
MOTLEY_IN_EACH_PRECISION(round, RoundArgs);

}  // namespace motley::cuda
