#include <cmath>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/map_elements.cuh"

namespace motley::cuda {
namespace {

/// For the exponents of normal doubles: ldexp() costs more than the addition it serves.
__device__ double power_of_two(int32_t exponent) {
  return __longlong_as_double((int64_t{1023} + exponent) << 52);
}

struct AddFixed {
  const int32_t* exponent;
  int64_t* overflow;
  __device__ int64_t operator()(float x, int64_t sum) const {
    const double scaled = static_cast<double>(x) * power_of_two(*exponent);
    if (fabs(scaled) < kFixedLimit) return sum + __double2ll_rn(scaled);  // false for NaN
    *overflow = 1;  // whoever writes, writes the same
    return sum;
  }
};

struct OfFixed {
  double scale;
  __device__ float operator()(int64_t sum) const {  // the conversion rounds, the scaling is exact
    return static_cast<float>(static_cast<double>(__ll2float_rn(sum)) * scale);
  }
};

}  // namespace

void accumulate_fixed(Device& device, const AccumulateFixedArgs& args) {
  const AddFixed function{args.exponent.as<const int32_t>(), args.overflow.as<int64_t>()};
  const BinaryMap<float, int64_t, int64_t, AddFixed, Reuse::kNotSoon> map{
      args.x.as<const float>(), args.acc.as<const int64_t>(), args.acc.as<int64_t>(), function};
  launch_map(cuda_device(device), "accumulate in fixed point", map, args.count);
}

void from_fixed(Device& device, const FromFixedArgs& args) {
  const OfFixed function{std::ldexp(1.0, -args.exponent)};
  const UnaryMap<int64_t, float, OfFixed> map{args.acc.as<const int64_t>(), args.out.as<float>(),
                                              function};
  launch_map(cuda_device(device), "convert from fixed point", map, args.count);
}

}  // namespace motley::cuda
