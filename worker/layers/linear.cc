#include "worker/layers/linear.h"

namespace motley {

MatmulArgs Linear::product(LayerEmitter& emitter, Address input) const {
  const int64_t rows = emitter.batch().rows();
  return {.a = input,
          .b = emitter.rounded_parameter(padded_weight()),
          .c = emitter.activation(rows * output_stride()),
          .bias = bias_ ? emitter.rounded_parameter(*bias_) : Address(),
          .m = rows,
          .n = shape_.computed(),
          .k = shape_.inputs,
          .transpose_b = true,
          .c_stride = shape_.output_stride};
}

void Linear::emit_product(LayerEmitter& emitter, MatmulArgs args) const {
  args.fp8 = shape_.fp8;
  const int64_t workspace =
      matmul_workspace_elements(args, emitter.options().kind, emitter.precision());
  if (workspace > 0) args.workspace = emitter.statistic(workspace);
  emitter.emit(args);
}

Address Linear::forward(LayerEmitter& emitter, Address input) const {
  const MatmulArgs args = product(emitter, input);
  emit_product(emitter, args);
  return args.c;
}

Linear::Activated Linear::forward_gelu(LayerEmitter& emitter, Address input) const {
  MatmulArgs args = product(emitter, input);
  args.pre_activation = emitter.activation(args.m * args.n);
  args.epilogue = Epilogue::kGelu;
  emit_product(emitter, args);
  return {args.pre_activation, args.c};
}

Address Linear::backward(LayerEmitter& emitter, Address input, Address d_output,
                         Address pre_activation) const {
  emit_parameter_gradients(emitter, input, d_output);
  const int64_t rows = emitter.batch().rows();
  const Address d_input = emitter.activation(rows * shape_.inputs);
  emit_product(emitter,
               {.a = d_output,
                .b = emitter.rounded_parameter(padded_weight()),
                .c = d_input,
                .m = rows,
                .n = shape_.inputs,
                .k = shape_.computed(),
                .a_stride = shape_.output_stride,
                .pre_activation = pre_activation,
                .epilogue = pre_activation.null() ? Epilogue::kNone : Epilogue::kGeluGradient,
                .gradient_a = true});
  return d_input;
}

void Linear::emit_parameter_gradients(LayerEmitter& emitter, Address input,
                                      Address d_output) const {
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
  emit_product(emitter, {.a = d_output,
                         .b = input,
                         .c = weight.address,
                         .m = shape_.outputs,
                         .n = shape_.inputs,
                         .k = rows,
                         .transpose_a = true,
                         .accumulate = weight.accumulate,
                         .full_output = true,
                         .a_stride = shape_.output_stride,
                         .gradient_a = true});
  emitter.finish_gradient(weight);
}

}  // namespace motley
