#include <cmath>

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"

namespace motley::cuda {
namespace {

__global__ void accumulate(const float* x, int64_t* acc, int64_t* overflow, int64_t count,
                           const int32_t* exponent) {
  const int64_t i = element_index();
  if (i >= count) return;
  const double scaled = ldexp(static_cast<double>(x[i]), *exponent);
  if (fabs(scaled) < kFixedLimit)  // false for NaN
    acc[i] += __double2ll_rn(scaled);
  else
    *overflow = 1;  // whoever writes, writes the same
}

__global__ void convert(const int64_t* acc, float* out, int64_t count, double scale) {
  const int64_t i = element_index();
  if (i >= count) return;  // the conversion rounds, the scaling is exact
  out[i] = static_cast<float>(static_cast<double>(__ll2float_rn(acc[i])) * scale);
}

}  // namespace

void accumulate_fixed(Device& device, const AccumulateFixedArgs& args) {
  CudaDevice& gpu = cuda_device(device);
  if (args.count == 0) return;
  launch(gpu, "accumulate in fixed point", {blocks_for(args.count)}, accumulate,
         args.x.as<const float>(), args.acc.as<int64_t>(), args.overflow.as<int64_t>(), args.count,
         args.exponent.as<const int32_t>());
}

void from_fixed(Device& device, const FromFixedArgs& args) {
  CudaDevice& gpu = cuda_device(device);
  if (args.count == 0) return;
  launch(gpu, "convert from fixed point", {blocks_for(args.count)}, convert,
         args.acc.as<const int64_t>(), args.out.as<float>(), args.count,
         std::ldexp(1.0, -args.exponent));
}

}  // namespace motley::cuda
