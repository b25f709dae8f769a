#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.cuh"

namespace motley::cuda {
namespace {

/// The operands, and the step's constants in the type of the elements.
struct Adam {
  float *p, *m, *v;
  const float* gradient;
  int64_t count;
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float gradient_scale, m_scale, v_scale, eps, lr, weight_decay;
};

__global__ void step(Adam a) {
  const int64_t i = element_index();
  if (i >= a.count) return;
  const float g = a.gradient[i] * a.gradient_scale;
  const float m = a.beta1 * a.m[i] + a.one_minus_beta1 * g;
  const float v = a.beta2 * a.v[i] + a.one_minus_beta2 * g * g;
  const float direction = (m * a.m_scale) / (sqrtf(v * a.v_scale) + a.eps);
  a.m[i] = m;
  a.v[i] = v;
  a.p[i] -= a.lr * (direction + a.weight_decay * a.p[i]);
}

}  // namespace

void adamw(Device& device, const AdamwArgs& args) {
  CudaDevice& gpu = cuda_device(device);
  if (args.count == 0) return;
  const auto narrow = [](double x) { return static_cast<float>(x); };
  launch(gpu, "adamw", {blocks_for(args.count)}, step,
         Adam{.p = args.parameter.as<float>(),
              .m = args.m.as<float>(),
              .v = args.v.as<float>(),
              .gradient = args.gradient.as<const float>(),
              .count = args.count,
              .beta1 = narrow(args.beta1),
              .one_minus_beta1 = narrow(1 - args.beta1),
              .beta2 = narrow(args.beta2),
              .one_minus_beta2 = narrow(1 - args.beta2),
              .gradient_scale = narrow(args.gradient_scale),
              .m_scale = narrow(1 / args.correction1),
              .v_scale = narrow(1 / args.correction2),
              .eps = narrow(args.eps),
              .lr = narrow(args.lr),
              .weight_decay = narrow(args.weight_decay)});
}

}  // namespace motley::cuda
