#include "worker/layers/linear.h"

namespace motley {

Address Linear::forward(LayerEmitter& emitter, Address input) const {
  const int64_t rows = emitter.batch().rows();
  const Address output = emitter.activation(rows * shape_.outputs);
  emitter.emit(MatmulArgs{.a = input,
                          .b = emitter.rounded_parameter(weight_),
                          .c = output,
                          .bias = bias_ ? emitter.rounded_parameter(*bias_) : Address(),
                          .m = rows,
                          .n = shape_.outputs,
                          .k = shape_.inputs,
                          .transpose_b = true});
  return output;
}

Address Linear::backward(LayerEmitter& emitter, Address input, Address d_output) const {
  const int64_t rows = emitter.batch().rows();
  if (bias_) {
    const GradientTarget bias = emitter.begin_gradient(*bias_);
    emitter.emit(BiasGradientArgs{.in = d_output,
                                  .out = bias.address,
                                  .rows = rows,
                                  .n = shape_.outputs,
                                  .accumulate = bias.accumulate});
    emitter.finish_gradient(bias);
  }
  const GradientTarget weight = emitter.begin_gradient(weight_);
  emitter.emit(MatmulArgs{.a = d_output,
                          .b = input,
                          .c = weight.address,
                          .bias = {},
                          .m = shape_.outputs,
                          .n = shape_.inputs,
                          .k = rows,
                          .transpose_a = true,
                          .accumulate = weight.accumulate,
                          .full_output = true});
  emitter.finish_gradient(weight);
  const Address d_input = emitter.activation(rows * shape_.inputs);
  emitter.emit(MatmulArgs{.a = d_output,
                          .b = emitter.rounded_parameter(weight_),
                          .c = d_input,
                          .bias = {},
                          .m = rows,
                          .n = shape_.inputs,
                          .k = shape_.outputs});
  return d_input;
}

}  // namespace motley
