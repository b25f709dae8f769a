// The reference device's backward operations against central differences of its forward ones, in
// float64. Every other device is compared with the reference, so this covers all of them.

#include <cmath>

#include "tests/contract/device_ops/bench.h"

namespace motley::testing {
namespace {

/// f(inputs) = Σ weights·output, with its claimed gradient with respect to each input.
struct Differentiable {
  std::function<double(const std::vector<Values>& inputs)> value;
  std::function<std::vector<Values>(const std::vector<Values>& inputs)> gradient;
};

/// Five-point formula; its error is O(h⁴).
double slope(const Differentiable& function, std::vector<Values>& inputs, double& coordinate) {
  constexpr double kStep = 1e-3;
  const double at = coordinate;
  const auto shifted = [&](double steps) {
    coordinate = at + steps * kStep;
    return function.value(inputs);
  };
  const double difference = 8 * (shifted(1) - shifted(-1)) - (shifted(2) - shifted(-2));
  coordinate = at;
  return difference / (12 * kStep);
}

void expect_gradient(const Differentiable& function, std::vector<Values> inputs) {
  constexpr double kTolerance = 1e-7;
  const std::vector<Values> claimed = function.gradient(inputs);
  ASSERT_EQ(claimed.size(), inputs.size());
  for (size_t input = 0; input < inputs.size(); ++input) {
    ASSERT_EQ(claimed[input].size(), inputs[input].size());
    double largest = 0;
    for (const double value : claimed[input]) largest = std::max(largest, std::abs(value));
    ASSERT_GT(largest, 0);
    for (size_t i = 0; i < inputs[input].size(); ++i)
      ASSERT_NEAR(claimed[input][i], slope(function, inputs, inputs[input][i]),
                  kTolerance * largest)
          << "input " << input << " element " << i;
  }
}

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

class Gradients : public ::testing::Test {
 protected:
  Device& device_ = reference_device();
  Random random_{1};
};

// C = op(A)·op(B) + bias. With G the gradient of C: op(A)'s is G·op(B)ᵀ, op(B)'s op(A)ᵀ·G, the
// bias's the sum of G's rows; the engine emits exactly these products.
TEST_F(Gradients, MatmulAndBias) {
  constexpr int64_t kM = 3, kN = 5, kK = 4;
  const Values g = random_.normal(kM * kN);
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      Differentiable function;
      function.value = [&](const std::vector<Values>& in) {
        Bench bench(device_);
        const MatmulArgs args{bench.put(in[0]),
                              bench.put(in[1]),
                              bench.poisoned(kM * kN),
                              bench.put(in[2]),
                              kM,
                              kN,
                              kK,
                              ta,
                              tb,
                              false};
        bench.run(args);
        return dot(g, bench.get(args.c));
      };
      function.gradient = [&](const std::vector<Values>& in) {
        Bench bench(device_);
        const Address a = bench.put(in[0]), b = bench.put(in[1]), d_c = bench.put(g);
        const Address d_a = bench.poisoned(kM * kK), d_b = bench.poisoned(kK * kN);
        const Address d_bias = bench.poisoned(kN);
        bench.run(ta ? MatmulArgs{b, d_c, d_a, {}, kK, kM, kN, tb, true}
                     : MatmulArgs{d_c, b, d_a, {}, kM, kK, kN, false, !tb});
        bench.run(tb ? MatmulArgs{d_c, a, d_b, {}, kN, kK, kM, true, ta}
                     : MatmulArgs{a, d_c, d_b, {}, kK, kN, kM, !ta, false});
        bench.run(BiasGradientArgs{d_c, d_bias, kM, kN});
        return std::vector<Values>{bench.get(d_a), bench.get(d_b), bench.get(d_bias)};
      };
      expect_gradient(function,
                      {random_.normal(kM * kK), random_.normal(kK * kN), random_.normal(kN)});
    }
  }
}

TEST_F(Gradients, Embedding) {
  constexpr int64_t kRows = 6, kContext = 3, kWidth = 4, kVocab = 5;
  const std::vector<int32_t> tokens{0, 4, 2, 2, 1, 2};
  const Values g = random_.normal(kRows * kWidth);
  Differentiable function;
  function.value = [&](const std::vector<Values>& in) {
    Bench bench(device_);
    const EmbeddingForwardArgs args{bench.put(tokens),
                                    bench.put(in[0]),
                                    bench.put(in[1]),
                                    bench.poisoned(kRows * kWidth),
                                    kRows,
                                    kContext,
                                    kWidth,
                                    kVocab};
    bench.run(args);
    return dot(g, bench.get(args.out));
  };
  function.gradient = [&](const std::vector<Values>&) {
    Bench bench(device_);
    const EmbeddingBackwardArgs args{bench.put(tokens),
                                     bench.put(g),
                                     bench.poisoned(kVocab * kWidth),
                                     bench.poisoned(kContext * kWidth),
                                     kRows,
                                     kContext,
                                     kWidth,
                                     kVocab,
                                     false};
    bench.run(args);
    return std::vector<Values>{bench.get(args.token_gradient), bench.get(args.position_gradient)};
  };
  expect_gradient(function, {random_.normal(kVocab * kWidth), random_.normal(kContext * kWidth)});
}

LayerNormForwardArgs normalise(Bench& bench, const std::vector<Values>& in, int64_t rows,
                               int64_t width) {
  const LayerNormForwardArgs args{bench.put(in[0]),
                                  bench.put(in[1]),
                                  bench.put(in[2]),
                                  bench.poisoned(rows * width),
                                  bench.poisoned(rows),
                                  bench.poisoned(rows),
                                  rows,
                                  width};
  bench.run(args);
  return args;
}

TEST_F(Gradients, LayerNorm) {
  constexpr int64_t kRows = 3, kWidth = 7;
  const Values g = random_.normal(kRows * kWidth);
  Differentiable function;
  function.value = [&](const std::vector<Values>& in) {
    Bench bench(device_);
    return dot(g, bench.get(normalise(bench, in, kRows, kWidth).out));
  };
  function.gradient = [&](const std::vector<Values>& in) {
    Bench bench(device_);
    const LayerNormForwardArgs forward = normalise(bench, in, kRows, kWidth);
    const LayerNormBackwardArgs args{forward.x,
                                     forward.gain,
                                     forward.mean,
                                     forward.rstd,
                                     bench.put(g),
                                     bench.poisoned(kRows * kWidth),
                                     bench.poisoned(kWidth),
                                     bench.poisoned(kWidth),
                                     kRows,
                                     kWidth,
                                     false,
                                     false};
    bench.run(args);
    return std::vector<Values>{bench.get(args.d_x), bench.get(args.gain_gradient),
                               bench.get(args.bias_gradient)};
  };
  expect_gradient(function,
                  {random_.normal(kRows * kWidth), random_.normal(kWidth), random_.normal(kWidth)});
}

// C = gelu(A·B + bias): the gradient of what gelu was applied to is a product that gives it, here
// with the unit matrix.
TEST_F(Gradients, MatmulWithGelu) {
  constexpr int64_t kM = 3, kN = 5, kK = 4;
  const Values g = random_.normal(kM * kN);
  const auto forward = [&](Bench& bench, const std::vector<Values>& in) {
    MatmulArgs args{.a = bench.put(in[0]),
                    .b = bench.put(in[1]),
                    .c = bench.poisoned(kM * kN),
                    .bias = bench.put(in[2]),
                    .m = kM,
                    .n = kN,
                    .k = kK};
    args.pre_activation = bench.poisoned(kM * kN);
    args.epilogue = Epilogue::kGelu;
    bench.run(args);
    return args;
  };
  Differentiable function;
  function.value = [&](const std::vector<Values>& in) {
    Bench bench(device_);
    return dot(g, bench.get(forward(bench, in).c));
  };
  function.gradient = [&](const std::vector<Values>& in) {
    Bench bench(device_);
    const MatmulArgs args = forward(bench, in);
    Values unit(kN * kN);
    for (size_t i = 0; i < kN; ++i) unit[i * kN + i] = 1;
    const Address d_sums = bench.poisoned(kM * kN), d_a = bench.poisoned(kM * kK);
    const Address d_b = bench.poisoned(kK * kN), d_bias = bench.poisoned(kN);
    MatmulArgs through{bench.put(g), bench.put(unit), d_sums, {}, kM, kN, kN};
    through.pre_activation = args.pre_activation;
    through.epilogue = Epilogue::kGeluGradient;
    bench.run(through);
    bench.run(MatmulArgs{d_sums, args.b, d_a, {}, kM, kK, kN, false, true});
    bench.run(MatmulArgs{args.a, d_sums, d_b, {}, kK, kN, kM, true, false});
    bench.run(BiasGradientArgs{d_sums, d_bias, kM, kN});
    return std::vector<Values>{bench.get(d_a), bench.get(d_b), bench.get(d_bias)};
  };
  expect_gradient(function, {random_.normal(kM * kK), random_.normal(kK * kN), random_.normal(kN)});
}

TEST_F(Gradients, Dropout) {
  constexpr int64_t kBatch = 2, kSize = 13;
  const auto drop = [&](const Values& x) {
    Bench bench(device_);
    const DropoutArgs args{.x = bench.put(x),
                           .out = bench.poisoned(kBatch * kSize),
                           .position = bench.put(std::vector<int64_t>{3, 4}),
                           .seed = 5,
                           .site = 6,
                           .rate = 0.4,
                           .samples = kBatch,
                           .elements_per_sample = kSize};
    bench.run(args);
    return bench.get(args.out);
  };
  const Values g = random_.normal(kBatch * kSize);
  Differentiable function;
  function.value = [&](const std::vector<Values>& in) { return dot(g, drop(in[0])); };
  function.gradient = [&](const std::vector<Values>&) { return std::vector<Values>{drop(g)}; };
  expect_gradient(function, {random_.normal(kBatch * kSize)});
}

TEST_F(Gradients, Attention) {
  constexpr int64_t kBatch = 2, kContext = 5, kHeads = 2, kHeadDim = 3;
  constexpr int64_t kRows = kBatch * kContext, kWidth = kHeads * kHeadDim;
  const Values g = random_.normal(kRows * kWidth);
  const auto attend = [&](Bench& bench, const Values& qkv) {
    AttentionForwardArgs args{bench.put(qkv),
                              bench.poisoned(kRows * kWidth),
                              bench.poisoned(kRows * kHeads),
                              Address(),
                              kBatch,
                              kContext,
                              kHeads,
                              kHeadDim};
    args.workspace = bench.poisoned_workspace(args);
    bench.run(args);
    return args;
  };
  Differentiable function;
  function.value = [&](const std::vector<Values>& in) {
    Bench bench(device_);
    return dot(g, bench.get(attend(bench, in[0]).out));
  };
  function.gradient = [&](const std::vector<Values>& in) {
    Bench bench(device_);
    const AttentionForwardArgs forward = attend(bench, in[0]);
    const AttentionBackwardArgs args{forward.qkv,
                                     forward.out,
                                     forward.lse,
                                     bench.put(g),
                                     bench.poisoned(kRows * 3 * kWidth),
                                     forward.workspace,
                                     kBatch,
                                     kContext,
                                     kHeads,
                                     kHeadDim};
    bench.run(args);
    return std::vector<Values>{bench.get(args.d_qkv)};
  };
  expect_gradient(function, {random_.normal(kRows * 3 * kWidth)});
}

TEST_F(Gradients, CrossEntropy) {
  constexpr int64_t kRows = 4, kVocab = 6;
  const std::vector<int32_t> targets{5, 0, 2, 2};
  const auto run = [&](Bench& bench, const Values& logits) {
    const CrossEntropyArgs args{bench.put(logits),
                                bench.put(targets),
                                bench.poisoned(kRows),
                                bench.poisoned(kRows * kVocab),
                                kRows,
                                kVocab};
    bench.run(args);
    return args;
  };
  Differentiable function;
  function.value = [&](const std::vector<Values>& in) {
    Bench bench(device_);
    return dot(Values(kRows, 1.0), bench.get(run(bench, in[0]).losses));
  };
  function.gradient = [&](const std::vector<Values>& in) {
    Bench bench(device_);
    return std::vector<Values>{bench.get(run(bench, in[0]).d_logits)};
  };
  expect_gradient(function, {random_.normal(kRows * kVocab)});
}

// A holder of the tokens 2 and 3 of five, without positions.
TEST_F(Gradients, EmbeddingOfPartOfTheVocabulary) {
  constexpr int64_t kRows = 6, kContext = 3, kWidth = 4, kVocab = 2, kFirst = 2;
  const std::vector<int32_t> tokens{0, 4, 2, 2, 3, 1};
  const Values g = random_.normal(kRows * kWidth);
  Differentiable function;
  function.value = [&](const std::vector<Values>& in) {
    Bench bench(device_);
    const EmbeddingForwardArgs args{.tokens = bench.put(tokens),
                                    .token_table = bench.put(in[0]),
                                    .out = bench.poisoned(kRows * kWidth),
                                    .rows = kRows,
                                    .context = kContext,
                                    .width = kWidth,
                                    .vocab = kVocab,
                                    .first_token = kFirst};
    bench.run(args);
    return dot(g, bench.get(args.out));
  };
  function.gradient = [&](const std::vector<Values>&) {
    Bench bench(device_);
    const EmbeddingBackwardArgs args{.tokens = bench.put(tokens),
                                     .d_out = bench.put(g),
                                     .token_gradient = bench.poisoned(kVocab * kWidth),
                                     .rows = kRows,
                                     .context = kContext,
                                     .width = kWidth,
                                     .vocab = kVocab,
                                     .first_token = kFirst};
    bench.run(args);
    return std::vector<Values>{bench.get(args.token_gradient)};
  };
  expect_gradient(function, {random_.normal(kVocab * kWidth)});
}

// Two holders, of two and of four columns; each has the gradient of its own.
TEST_F(Gradients, CrossEntropyOfParts) {
  constexpr int64_t kRows = 4, kFirst[] = {0, 2}, kVocab[] = {2, 4};
  const std::vector<int32_t> targets{5, 0, 2, 1};
  const auto run = [&](Bench& bench, const std::vector<Values>& in, size_t holder) {
    Values stats;
    for (size_t part = 0; part < 2; ++part) {
      const CrossEntropyPartArgs args{.logits = bench.put(in[part]),
                                      .targets = bench.put(targets),
                                      .stats = bench.poisoned(kRows * 3),
                                      .rows = kRows,
                                      .vocab = kVocab[part],
                                      .first_token = kFirst[part]};
      bench.run(args);
      const Values of_part = bench.get(args.stats);
      stats.insert(stats.end(), of_part.begin(), of_part.end());
    }
    const CrossEntropyCombineArgs args{.stats = bench.put(stats),
                                       .logits = bench.put(in[holder]),
                                       .targets = bench.put(targets),
                                       .losses = bench.poisoned(kRows),
                                       .d_logits = bench.poisoned(kRows * kVocab[holder]),
                                       .parts = 2,
                                       .rows = kRows,
                                       .vocab = kVocab[holder],
                                       .first_token = kFirst[holder]};
    bench.run(args);
    return args;
  };
  Differentiable function;
  function.value = [&](const std::vector<Values>& in) {
    Bench bench(device_);
    return dot(Values(kRows, 1.0), bench.get(run(bench, in, 0).losses));
  };
  function.gradient = [&](const std::vector<Values>& in) {
    Bench bench(device_);
    return std::vector<Values>{bench.get(run(bench, in, 0).d_logits),
                               bench.get(run(bench, in, 1).d_logits)};
  };
  expect_gradient(function, {random_.normal(kRows * 2), random_.normal(kRows * 4)});
}

}  // namespace
}  // namespace motley::testing
