#include <numeric>

#include "comm/communicator.h"
#include "comm/compression/error_feedback.h"
#include "comm/compression/power_sgd.h"
#include "tests/unit/comm/compression_inputs.h"

namespace motley {
namespace {

using testing::all_codecs;
using testing::some_gradient;

std::vector<std::byte> room_for(Codec& codec, size_t elements) {
  return std::vector<std::byte>(
      static_cast<size_t>(codec.encoded_bytes(static_cast<int64_t>(elements))));
}

/// Whether what is left of a float is a float.
bool loses_no_bit(const CodecSpec& spec) {
  const bool by_scale = spec.kind == CodecKind::kInt8 || spec.kind == CodecKind::kSign;
  return !by_scale && spec.values != CodecValues::kInt8;
}

TEST(ErrorFeedback, ResidualAndDecodedAreTheInput) {
  std::mt19937 random(seed_of_this_run());
  for (const CodecSpec& spec : all_codecs())
    for (const size_t length : testing::kLengths) {
      SCOPED_TRACE(to_text(spec) + ", " + std::to_string(length) + " elements");
      std::vector<float> residual(length, 0.0F);
      ErrorFeedback feedback(spec, residual);
      std::vector<std::byte> bytes = room_for(feedback.codec(), length);
      for (int step = 0; step < 3; ++step) {
        std::vector<float> chunk = some_gradient(length, random);
        std::vector<float> wanted = chunk, decoded(length);
        for (size_t i = 0; i < length; ++i) wanted[i] += residual[i];
        feedback.compress(0, chunk, bytes);
        feedback.codec().decode(bytes, decoded);
        ASSERT_EQ(chunk, decoded);
        const double rounding = loses_no_bit(spec) ? 0 : 0x1p-24;
        for (size_t i = 0; i < length; ++i)
          ASSERT_LE(std::fabs(double{decoded[i]} + residual[i] - wanted[i]),
                    rounding * std::fabs(residual[i]))
              << i;
      }
    }
}

TEST(ErrorFeedback, ChunksHaveTheirOwnResiduals) {
  std::mt19937 random(seed_of_this_run());
  const std::vector<float> gradient = some_gradient(1000, random);
  CodecSpec spec;
  spec.kind = CodecKind::kInt8;
  std::vector<float> whole(1000, 0.0F), part(300, 0.0F);
  ErrorFeedback of_whole(spec, whole), of_part(spec, part);
  for (int step = 0; step < 3; ++step) {
    std::vector<float> a(gradient.begin() + 600, gradient.begin() + 900), b = a;
    std::vector<std::byte> bytes = room_for(of_whole.codec(), 300), others = bytes;
    of_whole.compress(600, a, bytes);
    of_part.compress(0, b, others);
    EXPECT_EQ(bytes, others);
  }
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 600));
  EXPECT_EQ(std::count(whole.begin(), whole.begin() + 600, 0.0F), 600);
  EXPECT_EQ(std::count(whole.begin() + 900, whole.end(), 0.0F), 100);
}

/// What is sent of a constant is in the mean that constant: what is left is what some steps bring,
/// of top-k as many as it needs to get round.
TEST(ErrorFeedback, TheMeanOfAConstantIsTheConstant) {
  constexpr size_t kElements = 300;
  for (const CodecSpec& spec : all_codecs()) {
    const int steps = spec.kind == CodecKind::kTopK ? static_cast<int>(400 / spec.fraction) : 200;
    std::vector<float> residual(kElements, 0.0F);
    ErrorFeedback feedback(spec, residual);
    std::vector<std::byte> bytes = room_for(feedback.codec(), kElements);
    std::vector<double> sum(kElements, 0.0);
    for (int step = 0; step < steps; ++step) {
      std::vector<float> chunk(kElements, 0.7F);
      chunk[5] = -0.3F;  // sign cannot send both at once
      feedback.compress(0, chunk, bytes);
      for (size_t i = 0; i < kElements; ++i) sum[i] += chunk[i];
    }
    for (size_t i = 0; i < kElements; ++i)
      EXPECT_NEAR(sum[i] / steps / (i == 5 ? -0.3F : 0.7F), 1, 0.01) << to_text(spec) << ": " << i;
  }
}

TEST(ErrorFeedback, ADivergedStepIsSeenAndForgotten) {
  std::mt19937 random(seed_of_this_run());
  for (const CodecSpec& spec : all_codecs())
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      std::vector<float> residual(1000, 0.0F);
      ErrorFeedback feedback(spec, residual);
      std::vector<std::byte> bytes = room_for(feedback.codec(), 1000);
      std::vector<float> chunk = some_gradient(1000, random);
      feedback.compress(0, chunk, bytes);
      const std::vector<float> before = residual;
      chunk = some_gradient(1000, random);
      chunk[400] = bad;
      feedback.compress(0, chunk, bytes);
      EXPECT_FALSE(std::isfinite(chunk[400])) << to_text(spec);
      EXPECT_EQ(residual[400], before[400]) << to_text(spec);
      chunk = some_gradient(1000, random);
      feedback.compress(0, chunk, bytes);
      for (size_t i = 0; i < 1000; ++i)
        ASSERT_TRUE(std::isfinite(chunk[i]) && std::isfinite(residual[i])) << to_text(spec);
    }
}

/// Everyone sends to everyone: what is planned is what travels, and all arrive at the same bits.
TEST(ErrorFeedback, PlannedBytesAreThoseOnTheWire) {
  constexpr int kRanks = 4;
  constexpr size_t kElements = 70'001;
  for (const CodecSpec& spec : all_codecs()) {
    std::vector<std::vector<float>> sums(kRanks);
    const Result<Unit> run = run_inproc(kRanks, [&](Communicator& comm) -> Result<Unit> {
      std::mt19937 random(seed_of_this_run() + static_cast<uint32_t>(comm.rank()));
      std::vector<float> residual(kElements, 0.0F);
      ErrorFeedback feedback(spec, residual);
      std::vector<float> chunk = some_gradient(kElements, random);
      std::vector<std::byte> mine = room_for(feedback.codec(), kElements), others = mine;
      feedback.compress(0, chunk, mine);
      const int64_t before = comm.bytes_sent();
      std::vector<float>& sum = sums[static_cast<size_t>(comm.rank())];
      sum.assign(kElements, 0.0F);
      for (int from = 0; from < kRanks; ++from) {
        for (int to = 0; from == comm.rank() && to < kRanks; ++to)
          if (to != from) MOTLEY_TRY_VOID(comm.send(mine, to));
        if (from != comm.rank()) MOTLEY_TRY_VOID(comm.receive(others, from));
        feedback.codec().decode_add(from == comm.rank() ? mine : others, sum);
      }
      EXPECT_EQ(comm.bytes_sent() - before,
                (kRanks - 1) * encoded_bytes(spec, static_cast<int64_t>(kElements)));
      return Unit{};
    });
    ASSERT_TRUE(run) << run.error().to_string();
    for (const std::vector<float>& sum : sums) EXPECT_EQ(sum, sums.front()) << to_text(spec);
  }
}

// --- training ---

/// Least squares, its samples spread over workers: worker w has the gradient H_w x - b_w.
struct LeastSquares {
  static constexpr int kWorkers = 4;
  static constexpr size_t kRows = 12, kColumns = 10, kSize = kRows * kColumns;
  static constexpr int kSamples = 1000;  // of a worker
  static constexpr int kSteps = 500;
  static constexpr float kRate = 0.015F;
  std::vector<float> h[kWorkers], b[kWorkers];
  double constant = 0;

  LeastSquares() {
    std::mt19937 random(20);
    std::normal_distribution<float> normal;
    std::vector<float> truth(kSize), sample(kSize);
    for (float& x : truth) x = normal(random);
    for (int w = 0; w < kWorkers; ++w) {
      h[w].assign(kSize * kSize, 0.0F);
      b[w].assign(kSize, 0.0F);
      for (int s = 0; s < kSamples; ++s) {
        for (float& x : sample) x = normal(random);
        add_sample(w, sample,
                   std::inner_product(sample.begin(), sample.end(), truth.begin(), normal(random)));
      }
    }
  }

  void add_sample(int w, const std::vector<float>& sample, float y) {
    constexpr float kPart = 1.0F / (kSamples * kWorkers);
    for (size_t i = 0; i < kSize; ++i) {
      for (size_t j = 0; j < kSize; ++j) h[w][i * kSize + j] += kPart * sample[i] * sample[j];
      b[w][i] += kPart * sample[i] * y;
    }
    constant += double{kPart} * y * y;
  }

  std::vector<float> gradient(int w, const std::vector<float>& x) const {
    std::vector<float> g(kSize);
    for (size_t i = 0; i < kSize; ++i)
      g[i] = std::inner_product(x.begin(), x.end(),
                                h[w].begin() + static_cast<std::ptrdiff_t>(i * kSize), -b[w][i]);
    return g;
  }

  /// The mean square over all samples.
  double loss(const std::vector<float>& x) const {
    double result = constant;
    for (int w = 0; w < kWorkers; ++w) {
      const std::vector<float> g = gradient(w, x);
      for (size_t i = 0; i < kSize; ++i) result += double{x[i]} * (double{g[i]} - b[w][i]);
    }
    return result;
  }

  /// The loss after gradient descent with `sum(x)`, the sum of all workers' gradients at x.
  template <class Sum>
  double train(const Sum& sum) const {
    std::vector<float> x(kSize, 0.0F);
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<float> g = sum(x);
      for (size_t i = 0; i < kSize; ++i) x[i] -= kRate * g[i];
    }
    return loss(x);
  }

  double trained_with(const CodecSpec& spec) const;
  double trained_with_power_sgd(const CodecSpec& spec) const;
};

double LeastSquares::trained_with(const CodecSpec& spec) const {
  std::vector<std::vector<float>> residuals(kWorkers, std::vector<float>(kSize, 0.0F));
  std::vector<ErrorFeedback> feedback;
  for (std::vector<float>& residual : residuals) feedback.emplace_back(spec, residual);
  std::vector<std::byte> bytes = room_for(feedback[0].codec(), kSize);
  return train([&](const std::vector<float>& x) {
    std::vector<float> sum(kSize, 0.0F);
    for (int w = 0; w < kWorkers; ++w) {
      std::vector<float> g = gradient(w, x);
      feedback[static_cast<size_t>(w)].compress(0, g, bytes);
      for (size_t i = 0; i < kSize; ++i) sum[i] += g[i];
    }
    return sum;
  });
}

double LeastSquares::trained_with_power_sgd(const CodecSpec& spec) const {
  std::vector<std::unique_ptr<testing::PowerSgdOfOne>> of_workers;
  std::vector<PowerSgd> workers;
  for (int w = 0; w < kWorkers; ++w) {
    of_workers.push_back(
        std::make_unique<testing::PowerSgdOfOne>(spec, MatrixShape{kRows, kColumns}, 1, 0));
    workers.push_back(of_workers.back()->power_sgd);
  }
  return train([&](const std::vector<float>& x) {
    std::vector<std::vector<float>> gradients;
    for (int w = 0; w < kWorkers; ++w) gradients.push_back(gradient(w, x));
    std::vector<std::span<float>> factors;
    for (size_t w = 0; w < kWorkers; ++w) factors.push_back(workers[w].project(gradients[w]));
    testing::sum_factors(factors, spec.values);
    for (size_t w = 0; w < kWorkers; ++w) factors[w] = workers[w].orthonormalise_and_project_back();
    const auto lost = testing::sum_factors(factors, spec.values);
    for (size_t w = 0; w < kWorkers; ++w) workers[w].reconstruct(lost[w]);
    return gradients[0];
  });
}

TEST(ErrorFeedback, TrainsToTheLossOfUncompressedGradients) {
  const LeastSquares problem;
  const double plain = problem.trained_with(CodecSpec{});
  EXPECT_LT(plain, problem.loss(std::vector<float>(LeastSquares::kSize, 0.0F)) / 50);
  for (const CodecSpec& spec : all_codecs())
    EXPECT_LT(problem.trained_with(spec), 1.01 * plain) << to_text(spec);
  const std::pair<int, CodecValues> of_power_sgd[] = {
      {1, CodecValues::kFp32}, {4, CodecValues::kFp16}, {2, CodecValues::kBf16}};
  for (const auto& [rank, values] : of_power_sgd) {
    const CodecSpec spec{.kind = CodecKind::kPowerSgd, .rank = rank, .values = values};
    EXPECT_LT(problem.trained_with_power_sgd(spec), 1.01 * plain) << to_text(spec);
  }
}

}  // namespace
}  // namespace motley
