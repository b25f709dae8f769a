#include "worker/layers/norm.h"

namespace motley {

Norm::Norm(const ParameterLayout& layout, const std::string& name, int64_t width)
    : gain_(layout.range(name + ".gain")), bias_(layout.range(name + ".bias")), width_(width) {}

Address Norm::forward(LayerEmitter& emitter, const ResidualSum& input) {
  const int64_t rows = emitter.batch().rows();
  const bool whole = input.branch.null();
  input_ = whole ? input.stream : input.branch;
  mean_ = emitter.statistic(rows);
  rstd_ = emitter.statistic(rows);
  const Address output = emitter.activation(rows * width_);
  emitter.emit(LayerNormForwardArgs{.x = input_,
                                    .gain = emitter.parameter(gain_),
                                    .bias = emitter.parameter(bias_),
                                    .out = output,
                                    .mean = mean_,
                                    .rstd = rstd_,
                                    .rows = rows,
                                    .width = width_,
                                    .residual = whole ? Address() : input.stream,
                                    .sum = whole ? Address() : input_});
  return output;
}

void Norm::backward_into(LayerEmitter& emitter, Address d_output, Address d_input) {
  emit_backward(emitter, d_output, d_input, true);
}

Address Norm::backward(LayerEmitter& emitter, Address d_output) {
  const Address d_input = emitter.activation(emitter.batch().rows() * width_);
  emit_backward(emitter, d_output, d_input, false);
  return d_input;
}

void Norm::emit_backward(LayerEmitter& emitter, Address d_output, Address d_input,
                         bool accumulate) {
  const GradientTarget gain = emitter.begin_gradient(gain_);
  const GradientTarget bias = emitter.begin_gradient(bias_);
  emitter.emit(LayerNormBackwardArgs{.x = input_,
                                     .gain = emitter.parameter(gain_),
                                     .mean = mean_,
                                     .rstd = rstd_,
                                     .d_out = d_output,
                                     .d_x = d_input,
                                     .gain_gradient = gain.address,
                                     .bias_gradient = bias.address,
                                     .rows = emitter.batch().rows(),
                                     .width = width_,
                                     .accumulate_input = accumulate,
                                     .accumulate_parameters = gain.accumulate});
  emitter.finish_gradient(gain);
  emitter.finish_gradient(bias);
}

}  // namespace motley
