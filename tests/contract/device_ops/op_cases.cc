#include "tests/contract/device_ops/op_cases.h"

#include <cmath>

namespace motley::testing {

std::string label(std::string name, std::initializer_list<int64_t> numbers) {
  for (const int64_t number : numbers) name += "_" + std::to_string(number);
  return name;
}

Values spread(const Values& dense, int64_t columns, int64_t gap) {
  Values rows;
  for (auto at = dense.begin(); at != dense.end(); at += columns) {
    rows.insert(rows.end(), at, at + columns);
    rows.insert(rows.end(), static_cast<size_t>(gap), 1e3);
  }
  return rows;
}

Values gathered(const Values& spread, int64_t columns, int64_t gap) {
  Values dense;
  for (auto at = spread.begin(); at != spread.end(); at += columns + gap)
    dense.insert(dense.end(), at, at + columns);
  return dense;
}

namespace {

void add_bias_gradients(std::vector<OpCase>& cases) {
  for (const int64_t rows : {1, 3, 33, 65, 257, 3000})
    for (const int64_t n : {1, 3, 17, 64, 130, 264})
      for (const bool accumulate : {false, true})
        cases.push_back({label("bias_gradient", {rows, n, accumulate}), 5e-6,
                         [=](Bench& bench) {
                           Random random(2);
                           const BiasGradientArgs args{
                               .in = bench.put(random.normal(rows * n)),
                               .out = accumulate ? bench.put(random.normal(n)) : bench.poisoned(n),
                               .rows = rows,
                               .n = n,
                               .accumulate = accumulate};
                           bench.run(args);
                           return std::vector{args.out};
                         },
                         8, std::sqrt(static_cast<double>(rows))});
}

/// Rows that are not nearly constant by chance, which no float could normalise; wide ones off zero,
/// for else their mean is all rounding.
Values uneven_rows(Random& random, int64_t rows, int64_t width) {
  Values values = random.normal(rows * width);
  if (width > 1000)
    for (double& value : values) value = static_cast<float>(value + 0.25);
  if (width > 1)
    for (size_t i = 0; i < values.size(); i += static_cast<size_t>(width)) values[i] += 8;
  return values;
}

std::vector<Address> layer_norm_forward(Bench& bench, int64_t rows, int64_t width) {
  Random random(5);
  const LayerNormForwardArgs args{.x = bench.put(uneven_rows(random, rows, width)),
                                  .gain = bench.put(random.normal(width)),
                                  .bias = bench.put(random.normal(width)),
                                  .out = bench.poisoned(rows * width),
                                  .mean = bench.poisoned(rows),
                                  .rstd = bench.poisoned(rows),
                                  .rows = rows,
                                  .width = width};
  bench.run(args);
  return {args.out, args.mean, args.rstd};
}

std::vector<Address> layer_norm_of_sum(Bench& bench, int64_t rows, int64_t width, bool in_place) {
  Random random(19);
  LayerNormForwardArgs args{.x = bench.put(uneven_rows(random, rows, width)),
                            .gain = bench.put(random.normal(width)),
                            .bias = bench.put(random.normal(width)),
                            .out = bench.poisoned(rows * width),
                            .mean = bench.poisoned(rows),
                            .rstd = bench.poisoned(rows),
                            .rows = rows,
                            .width = width,
                            // Too little to make the rows even again.
                            .residual = bench.put(random.normal(rows * width, 0.25)),
                            .sum = {}};
  args.sum = in_place ? args.x : bench.poisoned(rows * width);
  bench.run(args);
  return {args.out, args.mean, args.rstd, args.sum};
}

std::vector<Address> layer_norm_backward(Bench& bench, int64_t rows, int64_t width, int form) {
  Random random(6);
  const bool add_input = form & 1, add_parameters = form & 2;
  const auto output = [&](bool add, int64_t count) {
    return add ? bench.put(random.normal(count)) : bench.poisoned(count);
  };
  const LayerNormBackwardArgs args{.x = bench.put(random.normal(rows * width)),
                                   .gain = bench.put(random.normal(width)),
                                   .mean = bench.put(random.normal(rows, 0.1)),
                                   .rstd = bench.put(random.normal(rows)),
                                   .d_out = bench.put(random.normal(rows * width)),
                                   .d_x = output(add_input, rows * width),
                                   .gain_gradient = output(add_parameters, width),
                                   .bias_gradient = output(add_parameters, width),
                                   .rows = rows,
                                   .width = width,
                                   .accumulate_input = add_input,
                                   .accumulate_parameters = add_parameters};
  bench.run(args);
  return {args.d_x, args.gain_gradient, args.bias_gradient};
}

void add_layer_norm(std::vector<OpCase>& cases, int64_t rows, int64_t width) {
  cases.push_back({label("layer_norm_forward", {rows, width}), 2e-6,
                   [=](Bench& bench) { return layer_norm_forward(bench, rows, width); }, 8, 0.1});
  for (const bool in_place : {false, true})
    cases.push_back({label("layer_norm_of_sum", {rows, width, in_place}), 3e-6,
                     [=](Bench& bench) { return layer_norm_of_sum(bench, rows, width, in_place); },
                     8, 1});
  for (int form = 0; form < 4; ++form)
    cases.push_back({label("layer_norm_backward", {rows, width, form}), 5e-6,
                     [=](Bench& bench) { return layer_norm_backward(bench, rows, width, form); }, 8,
                     1});
}

void add_layer_norms(std::vector<OpCase>& cases) {
  for (const int64_t rows : {1, 3, 33, 100})
    for (const int64_t width : {1, 3, 8, 17, 65, 130, 768}) add_layer_norm(cases, rows, width);
  add_layer_norm(cases, 3, 384);
  // Beyond what the registers of a block hold: in full precision, in all, and odd.
  for (const int64_t width : {4097, 8200, 16384, 16391, 24576}) add_layer_norm(cases, 2, width);
  add_layer_norm(cases, 1100, 16);
  constexpr int64_t kRowsOfSeveralARun = 385, kWide = 4100;
  cases.push_back(
      {label("layer_norm_backward", {kRowsOfSeveralARun, kWide}), 5e-6,
       [=](Bench& bench) { return layer_norm_backward(bench, kRowsOfSeveralARun, kWide, 3); }});
}

std::vector<Address> add(Bench& bench, int64_t count, bool in_place) {
  Random random(7);
  AddArgs args{bench.put(random.normal(count)), bench.put(random.normal(count)), Address(), count};
  args.out = in_place ? args.a : bench.poisoned(count);
  bench.run(args);
  return {args.out};
}

std::vector<Address> copy(Bench& bench, int64_t count) {
  Random random(15);
  const CopyArgs args{bench.put(random.normal(count)), bench.poisoned(count),
                      count * bench.device().element_bytes()};
  bench.run(args);
  return {args.out};
}

std::vector<Address> round(Bench& bench, int64_t count) {
  Random random(16);
  const RoundArgs args{bench.put(random.normal(count)), bench.poisoned(count), count};
  bench.run(args);
  return {args.out};
}

std::vector<Address> scale(Bench& bench, int64_t count) {
  Random random(17);
  const ScaleArgs args{.x = bench.put(random.normal(count)),
                       .overflow = bench.put(std::vector<int64_t>{0}),
                       .count = count,
                       .factor = 0.125};
  bench.run(args);
  return {args.x};
}

void add_elementwise(std::vector<OpCase>& cases) {
  for (const int64_t count : {1, 3, 17, 65, 40001}) {
    cases.push_back({label("copy", {count}), 0, [=](Bench& bench) { return copy(bench, count); }});
    cases.push_back(
        {label("round", {count}), 0, [=](Bench& bench) { return round(bench, count); }});
    cases.push_back(
        {label("scale", {count}), 0, [=](Bench& bench) { return scale(bench, count); }});
    for (const bool in_place : {false, true}) {
      cases.push_back({label("add", {count, in_place}), 1e-7,
                       [=](Bench& bench) { return add(bench, count, in_place); }});
    }
  }
}

std::vector<Address> dropout(Bench& bench, int64_t elements, double rate, bool in_place) {
  constexpr int64_t kSamples = 3;
  Random random(18);
  DropoutArgs args{.x = bench.put(random.normal(kSamples * elements)),
                   .out = Address(),
                   .position = bench.put(std::vector<int64_t>{12, 34}),
                   .seed = 56,
                   .site = 78,
                   .rate = rate,
                   .samples = kSamples,
                   .elements_per_sample = elements};
  args.out = in_place ? args.x : bench.poisoned(kSamples * elements);
  bench.run(args);
  return {args.out};
}

void add_dropout(std::vector<OpCase>& cases) {
  for (const int64_t elements : {1, 3, 17, 65, 40001})
    for (const int64_t percent : {0, 10, 90})
      for (const bool in_place : {false, true})
        cases.push_back({label("dropout", {elements, percent, in_place}), 2e-7, [=](Bench& bench) {
                           return dropout(bench, elements, static_cast<double>(percent) / 100,
                                          in_place);
                         }});
}

struct AttentionShape {
  int64_t samples, context, heads, head_dim;
  int64_t rows() const { return samples * context; }
  int64_t width() const { return heads * head_dim; }
};

AttentionForwardArgs attend(Bench& bench, const AttentionShape& shape) {
  Random random(10);
  AttentionForwardArgs args{.qkv = bench.put(random.normal(shape.rows() * 3 * shape.width())),
                            .out = bench.poisoned(shape.rows() * shape.width()),
                            .lse = bench.poisoned(shape.rows() * shape.heads),
                            .workspace = Address(),
                            .samples = shape.samples,
                            .context = shape.context,
                            .heads = shape.heads,
                            .head_dim = shape.head_dim};
  args.workspace = bench.poisoned_workspace(args);
  bench.run(args);
  return args;
}

std::vector<Address> attention_backward(Bench& bench, const AttentionShape& shape) {
  const AttentionForwardArgs forward = attend(bench, shape);
  Random random(11);
  const AttentionBackwardArgs args{.qkv = forward.qkv,
                                   .out = forward.out,
                                   .lse = forward.lse,
                                   .d_out = bench.put(random.normal(shape.rows() * shape.width())),
                                   .d_qkv = bench.poisoned(shape.rows() * 3 * shape.width()),
                                   .workspace = bench.poisoned_workspace(forward),
                                   .samples = shape.samples,
                                   .context = shape.context,
                                   .heads = shape.heads,
                                   .head_dim = shape.head_dim};
  bench.run(args);
  return {args.d_qkv};
}

void add_attention(std::vector<OpCase>& cases) {
  // Around the edges of tiles of 32, 64 and 128 positions; heads that fill their columns of a tile,
  // that do not, that are no whole vectors, and one that is too large for a tile.
  constexpr AttentionShape kShapes[] = {
      {1, 1, 1, 1},    {2, 3, 2, 5},   {1, 17, 3, 8},  {2, 64, 2, 16},   {1, 65, 1, 17},
      {1, 200, 2, 32}, {2, 1, 1, 64},  {1, 63, 2, 64}, {1, 257, 1, 64},  {2, 65, 1, 80},
      {1, 40, 2, 96},  {1, 64, 1, 72}, {1, 33, 2, 97}, {1, 129, 1, 128}, {1, 70, 2, 136}};
  for (const AttentionShape& shape : kShapes) {
    const auto numbers = {shape.samples, shape.context, shape.heads, shape.head_dim};
    cases.push_back({label("attention_forward", numbers), 3e-6,
                     [=](Bench& bench) {
                       const AttentionForwardArgs args = attend(bench, shape);
                       return std::vector{args.out, args.lse};
                     },
                     8, 0.1});
    cases.push_back({label("attention_backward", numbers), 5e-6,
                     [=](Bench& bench) { return attention_backward(bench, shape); }});
  }
}

std::vector<Address> adamw(Bench& bench, int64_t count) {
  Random random(13);
  const Values v = random.normal(count);
  Values squares(v);
  for (double& value : squares) value = static_cast<float>(value * value);
  const AdamwArgs args{.parameter = bench.put(random.normal(count)),
                       .gradient = bench.put(random.normal(count)),
                       .m = bench.put(random.normal(count)),
                       .v = bench.put(squares),
                       .count = count,
                       .lr = 0.01,
                       .beta1 = 0.9,
                       .beta2 = 0.95,
                       .eps = 1e-8,
                       .weight_decay = 0.1,
                       .gradient_scale = 0.125,
                       .correction1 = 0.19,
                       .correction2 = 0.0975};
  bench.run(args);
  return {args.parameter, args.m, args.v};
}

/// Runs here and there, of unlike decay, with a copy in reduced precision: what lies between them
/// stays as it is. The first cannot be taken 16 bytes at a time.
std::vector<Address> adamw_of_runs(Bench& bench, bool aligned) {
  constexpr int64_t kExtent = 41000;
  const int64_t shift = aligned ? 0 : 1;
  const std::vector<ParameterRun> runs = {
      {.parameter = 4 + shift, .state = 8, .count = 17, .weight_decay = 0.1},
      {.parameter = 24, .state = 28 + shift, .count = 2 * kRunBlock + 7},
      {.parameter = 40000, .state = 40100, .count = 3, .weight_decay = 0.3}};
  Random random(21);
  Values squares = random.normal(kExtent);
  for (double& value : squares) value = static_cast<float>(value * value);
  AdamwArgs args{.parameter = bench.put(random.normal(kExtent)),
                 .gradient = bench.put(random.normal(kExtent)),
                 .m = bench.put(random.normal(kExtent)),
                 .v = bench.put(squares),
                 .lr = 0.01,
                 .beta1 = 0.9,
                 .beta2 = 0.95,
                 .eps = 1e-8,
                 .weight_decay = 0.9,  // not theirs
                 .gradient_scale = 0.125,
                 .correction1 = 0.19,
                 .correction2 = 0.0975,
                 .rounded = bench.put(random.normal(kExtent)),
                 .run_count = static_cast<int64_t>(runs.size()),
                 .extent = kExtent};
  for (const ParameterRun& run : runs) args.count += run.count;
  args.runs = bench.put(runs, &args.blocks);
  bench.run(args);
  return {args.parameter, args.m, args.v, args.rounded};
}

std::vector<Address> from_fixed(Bench& bench, int64_t count) {
  Random random(14);
  std::vector<int64_t> sums;
  for (const double value : random.normal(count, 1e15)) sums.push_back(static_cast<int64_t>(value));
  const FromFixedArgs args{
      .acc = bench.put(sums), .out = bench.poisoned(count), .count = count, .exponent = 40};
  bench.run(args);
  return {args.out};
}

void add_optimizer(std::vector<OpCase>& cases) {
  for (const int64_t count : {1, 3, 17, 65, 40001}) {
    cases.push_back(
        {label("adamw", {count}), 1e-6, [=](Bench& bench) { return adamw(bench, count); }, 8, 0.1});
    cases.push_back({label("from_fixed", {count}), 1e-7,
                     [=](Bench& bench) { return from_fixed(bench, count); }});
  }
  for (const bool aligned : {false, true})
    cases.push_back({label("adamw_of_runs", {aligned}), 1e-6,
                     [=](Bench& bench) { return adamw_of_runs(bench, aligned); }});
}

}  // namespace

std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  add_matmul_cases(cases);
  add_bias_gradients(cases);
  add_layer_norms(cases);
  add_elementwise(cases);
  add_dropout(cases);
  add_attention(cases);
  add_vocabulary_cases(cases);
  add_optimizer(cases);
  return cases;
}

}  // namespace motley::testing
