#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/runs.cuh"

namespace motley::cuda {
namespace {

/// The operands, and the step's constants in the type of the elements.
template <class T>
struct Adam {
  float *p, *m, *v;
  const float* gradient;
  T* rounded;  ///< may be null
  Runs runs;
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float gradient_scale, m_scale, v_scale, eps, lr;
};

template <class T>
__device__ inline void step(const Adam<T>& a, float decay, float gradient, float& p, float& m,
                            float& v) {
  const float g = gradient * a.gradient_scale;
  m = a.beta1 * m + a.one_minus_beta1 * g;
  v = a.beta2 * v + a.one_minus_beta2 * g * g;
  const float direction = (m * a.m_scale) / (sqrtf(v * a.v_scale) + a.eps);
  p -= a.lr * (direction + decay * p);
}

/// Four values that are stored at once.
template <class T>
struct alignas(4 * sizeof(T)) Four {
  T at[4];
};

__device__ inline bool aligned(const void* at, size_t bytes) {
  return reinterpret_cast<uintptr_t>(at) % bytes == 0;
}

template <class T>
__device__ void step_of_four(const Adam<T>& a, float decay, int64_t parameter, int64_t state) {
  float4& p_at = *reinterpret_cast<float4*>(a.p + parameter);
  float4& m_at = *reinterpret_cast<float4*>(a.m + state);
  float4& v_at = *reinterpret_cast<float4*>(a.v + state);
  const float4 gradient = *reinterpret_cast<const float4*>(a.gradient + parameter);
  float4 p = p_at, m = m_at, v = v_at;
  step(a, decay, gradient.x, p.x, m.x, v.x);
  step(a, decay, gradient.y, p.y, m.y, v.y);
  step(a, decay, gradient.z, p.z, m.z, v.z);
  step(a, decay, gradient.w, p.w, m.w, v.w);
  p_at = p;
  m_at = m;
  v_at = v;
  if (a.rounded == nullptr) return;
  Four<T> rounded;
  put(&rounded.at[0], p.x);
  put(&rounded.at[1], p.y);
  put(&rounded.at[2], p.z);
  put(&rounded.at[3], p.w);
  *reinterpret_cast<Four<T>*>(a.rounded + parameter) = rounded;
}

/// A block of threads for each block of a run; 16 bytes at a time where all operands lie so.
template <class T>
__global__ void update(Adam<T> a) {
  const int64_t block = blockIdx.x;
  const ParameterRun run = run_of_block(a.runs, block);
  const int64_t begin = (block - run.first_block) * kRunBlock;
  const int64_t count = run.count - begin < kRunBlock ? run.count - begin : kRunBlock;
  const int64_t parameter = run.parameter + begin, state = run.state + begin;
  const auto decay = static_cast<float>(run.weight_decay);
  const bool wide_enough =
      aligned(a.p + parameter, sizeof(float4)) && aligned(a.gradient + parameter, sizeof(float4)) &&
      aligned(a.m + state, sizeof(float4)) && aligned(a.v + state, sizeof(float4)) &&
      (a.rounded == nullptr || aligned(a.rounded + parameter, sizeof(Four<T>)));
  const int64_t fours = wide_enough ? count / 4 : 0;
  for (int64_t i = threadIdx.x; i < fours; i += blockDim.x)
    step_of_four(a, decay, parameter + 4 * i, state + 4 * i);
  for (int64_t i = 4 * fours + threadIdx.x; i < count; i += blockDim.x) {
    float p = a.p[parameter + i];
    step(a, decay, a.gradient[parameter + i], p, a.m[state + i], a.v[state + i]);
    a.p[parameter + i] = p;
    if (a.rounded != nullptr) put(a.rounded + parameter + i, p);
  }
}

}  // namespace

template <Precision kPrecision>
void adamw(Device& device, const AdamwArgs& args) {
  using T = Element<kPrecision>;
  CudaDevice& gpu = cuda_device(device);
  const int64_t blocks = args.runs.null() ? blocks_of_run(args.count) : args.blocks;
  if (blocks == 0) return;
  const auto narrow = [](double x) { return static_cast<float>(x); };
  launch(gpu, "adamw", {static_cast<unsigned>(blocks)}, update<T>,
         Adam<T>{.p = args.parameter.as<float>(),
                 .m = args.m.as<float>(),
                 .v = args.v.as<float>(),
                 .gradient = args.gradient.as<const float>(),
                 .rounded = args.rounded.as<T>(),
                 .runs = {args.runs.as<const ParameterRun>(),
                          args.run_count,
                          {.count = args.count, .weight_decay = args.weight_decay}},
                 .beta1 = narrow(args.beta1),
                 .one_minus_beta1 = narrow(1 - args.beta1),
                 .beta2 = narrow(args.beta2),
                 .one_minus_beta2 = narrow(1 - args.beta2),
                 .gradient_scale = narrow(args.gradient_scale),
                 .m_scale = narrow(1 / args.correction1),
                 .v_scale = narrow(1 / args.correction2),
                 .eps = narrow(args.eps),
                 .lr = narrow(args.lr)});
}

MOTLEY_IN_EACH_PRECISION(adamw, AdamwArgs);

}  // namespace motley::cuda
