#include "worker/layers/layer.h"

namespace motley {

Address LayerEmitter::rounded_parameter(ParameterRange range) {
  if (!is_reduced(builder_.precision())) return parameter(range);
  const int64_t bytes = reduced_bytes(builder_.precision());
  return builder_.fixed(Segment::kRounded, Bytes(range.offset * bytes), Bytes(range.count * bytes));
}

Address LayerEmitter::parameter(ParameterRange range) {
  const int64_t bytes = full_bytes(builder_.precision());
  return builder_.fixed(Segment::kParameters, Bytes(range.offset * bytes),
                        Bytes(range.count * bytes));
}

void LayerEmitter::sum_parts(Address data, int64_t count) {
  if (shape().members > 1) builder_.emit(GroupSum{.data = data, .count = count});
}

Address LayerEmitter::add_up(const ResidualSum& sum, int64_t count) {
  if (sum.branch.null()) return sum.stream;
  emit(AddArgs{.a = sum.branch, .b = sum.stream, .out = sum.branch, .count = count});
  return sum.branch;
}

void LayerEmitter::drop(Address data, int64_t width, int place) {
  if (options_.dropout > 0) emit_dropout(data, data, width, place);
}

Address LayerEmitter::drop_gradient(Address d_data, int64_t width, int place) {
  if (options_.dropout == 0) return d_data;
  const Address gradient = activation(batch_.rows() * width);
  emit_dropout(d_data, gradient, width, place);
  return gradient;
}

void LayerEmitter::emit_dropout(Address in, Address out, int64_t width, int place) {
  constexpr int64_t kPlaces = 4;  // of a layer, at most
  emit(DropoutArgs{.x = in,
                   .out = out,
                   .position = batch_.position,
                   .seed = options_.seed,
                   .site = builder_.layer() * kPlaces + place,
                   .rate = options_.dropout,
                   .samples = batch_.samples,
                   .elements_per_sample = batch_.context * width});
}

GradientTarget LayerEmitter::begin_gradient(ParameterRange range) {
  if (options_.numerics == Numerics::kExact)
    return {.range = range, .address = statistic(range.count), .accumulate = false};
  const int64_t bytes = full_bytes(builder_.precision());
  const Address sum =
      builder_.fixed(Segment::kGradients, Bytes(range.offset * bytes), Bytes(range.count * bytes));
  return {.range = range, .address = sum, .accumulate = true};
}

void LayerEmitter::finish_gradient(const GradientTarget& target) {
  if (options_.numerics != Numerics::kExact) return;
  constexpr int64_t bytes = sizeof(int64_t);
  const Address sum = builder_.fixed(Segment::kGradients, Bytes(target.range.offset * bytes),
                                     Bytes(target.range.count * bytes));
  emit(AccumulateFixedArgs{.x = target.address,
                           .acc = sum,
                           .overflow = batch_.overflow,
                           .exponent = batch_.exponent,
                           .count = target.range.count});
}

}  // namespace motley
