#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"

namespace motley::cpu {
namespace {

/// The step's constants in the type of the elements.
struct Adam {
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float gradient_scale, m_scale, v_scale, eps, lr, weight_decay;

  Adam(const AdamwArgs& args, double decay)
      : beta1(static_cast<float>(args.beta1)),
        one_minus_beta1(static_cast<float>(1 - args.beta1)),
        beta2(static_cast<float>(args.beta2)),
        one_minus_beta2(static_cast<float>(1 - args.beta2)),
        gradient_scale(static_cast<float>(args.gradient_scale)),
        m_scale(static_cast<float>(1 / args.correction1)),
        v_scale(static_cast<float>(1 / args.correction2)),
        eps(static_cast<float>(args.eps)),
        lr(static_cast<float>(args.lr)),
        weight_decay(static_cast<float>(decay)) {}

  void step(float* __restrict p, const float* __restrict gradient, float* __restrict m,
            float* __restrict v, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) {
      const float g = gradient[i] * gradient_scale;
      m[i] = beta1 * m[i] + one_minus_beta1 * g;
      v[i] = beta2 * v[i] + one_minus_beta2 * g * g;
      const float direction = (m[i] * m_scale) / (std::sqrt(v[i] * v_scale) + eps);
      p[i] -= lr * (direction + weight_decay * p[i]);
    }
  }
};

void update(Device& device, const AdamwArgs& args, const ParameterRun& run) {
  const Adam adam(args, run.weight_decay);
  auto* const parameter = args.parameter.as<float>() + run.parameter;
  parallel_ranges(device, run.count, kTaskElements, [&](int64_t begin, int64_t end) {
    adam.step(parameter + begin, args.gradient.as<const float>() + run.parameter + begin,
              args.m.as<float>() + run.state + begin, args.v.as<float>() + run.state + begin,
              end - begin);
    if (!args.rounded.null())
      std::copy(parameter + begin, parameter + end,
                args.rounded.as<float>() + run.parameter + begin);
  });
}

}  // namespace

void adamw(Device& device, const AdamwArgs& args) {
  if (args.runs.null())
    return update(device, args, {.count = args.count, .weight_decay = args.weight_decay});
  for (int64_t r = 0; r < args.run_count; ++r)
    update(device, args, args.runs.as<const ParameterRun>()[r]);
}

}  // namespace motley::cpu
