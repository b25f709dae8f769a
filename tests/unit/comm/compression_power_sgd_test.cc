#include "comm/communicator.h"
#include "comm/compression/power_sgd.h"
#include "tests/unit/comm/compression_inputs.h"

namespace motley {
namespace {

using Floats = std::vector<float>;
using testing::sum_factors;

CodecSpec power_sgd(int rank, CodecValues values = CodecValues::kFp32) {
  return {.kind = CodecKind::kPowerSgd, .rank = rank, .values = values};
}

size_t elements_of(const MatrixShape& shape) {
  return static_cast<size_t>(shape.rows * shape.columns);
}

Floats normal_numbers(size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Floats numbers(count);
  for (float& x : numbers) x = normal(random);
  return numbers;
}

/// The product of two random matrices, with `rank` between them.
Floats of_rank(int rank, const MatrixShape& shape, std::mt19937& random) {
  Floats product(elements_of(shape), 0.0F);
  for (int k = 0; k < rank; ++k) {
    const Floats left = normal_numbers(static_cast<size_t>(shape.rows), random);
    const Floats right = normal_numbers(static_cast<size_t>(shape.columns), random);
    for (size_t i = 0; i < product.size(); ++i)
      product[i] += left[i / right.size()] * right[i % right.size()];
  }
  return product;
}

double norm(const Floats& values) {
  double square = 0;
  for (const float x : values) square += double{x} * x;
  return std::sqrt(square);
}

double distance(Floats a, const Floats& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return norm(a);
}

/// One rank's whole state, and what it saw in a step.
struct Worker : testing::PowerSgdOfOne {
  Worker(const CodecSpec& spec, MatrixShape matrix, uint64_t seed = 3)
      : PowerSgdOfOne(spec, matrix, seed, 7), values(spec.values), shape(matrix) {}

  CodecValues values;
  MatrixShape shape;
  Floats gradient;
  Floats wanted;  ///< gradient and residual
  Floats own_q;   ///< as it is sent

  /// P Qᵀ
  Floats product(const Floats& other_q) const {
    Floats out(residual.size(), 0.0F);
    const auto rows = static_cast<size_t>(shape.rows), columns = static_cast<size_t>(shape.columns);
    for (size_t k = 0; k * rows < p.size(); ++k)
      for (size_t i = 0; i < out.size(); ++i)
        out[i] += p[k * rows + i / columns] * other_q[k * columns + i % columns];
    return out;
  }
};

/// All workers' step with these gradients; what everyone then has.
Floats step(std::vector<std::unique_ptr<Worker>>& workers, const std::vector<Floats>& gradients) {
  std::vector<std::span<float>> factors;
  for (size_t w = 0; w < workers.size(); ++w) {
    Worker& worker = *workers[w];
    worker.gradient = gradients[w];
    factors.push_back(worker.power_sgd.project(worker.gradient));
    worker.wanted = worker.gradient;
  }
  sum_factors(factors, workers[0]->values);
  for (size_t w = 0; w < workers.size(); ++w) {
    factors[w] = workers[w]->power_sgd.orthonormalise_and_project_back();
    workers[w]->own_q.assign(factors[w].begin(), factors[w].end());
  }
  const std::vector<Floats> lost = sum_factors(factors, workers[0]->values);
  for (size_t w = 0; w < workers.size(); ++w) {
    workers[w]->power_sgd.reconstruct(lost[w]);
    for (size_t i = 0; i < lost[w].size(); ++i) workers[w]->own_q[i] -= lost[w][i];
  }
  for (const auto& worker : workers) EXPECT_EQ(worker->gradient, workers[0]->gradient);
  return workers[0]->gradient;
}

std::vector<std::unique_ptr<Worker>> workers_of(int count, const CodecSpec& spec,
                                                MatrixShape shape) {
  std::vector<std::unique_ptr<Worker>> workers;
  for (int w = 0; w < count; ++w) workers.push_back(std::make_unique<Worker>(spec, shape));
  return workers;
}

constexpr MatrixShape kShapes[] = {{1, 1}, {3, 1}, {1, 9}, {5, 3}, {16, 17}, {64, 48}, {7, 200}};

TEST(PowerSgd, IsExactWhereTheSumHasTheRank) {
  std::mt19937 random(seed_of_this_run());
  for (const MatrixShape& shape : kShapes)
    for (int rank = 1; rank <= 4; ++rank) {
      // Each alone is of full rank.
      const Floats sum = of_rank(rank, shape, random);
      const Floats one = normal_numbers(elements_of(shape), random);
      Floats other = sum;
      for (size_t i = 0; i < one.size(); ++i) other[i] -= one[i];
      auto workers = workers_of(2, power_sgd(rank), shape);
      const Floats out = step(workers, {one, other});
      // One step of power iteration: the worse conditioned the product with Q, the less exact.
      EXPECT_LE(distance(out, sum), 1e-2 * (norm(sum) + norm(one)))
          << shape.rows << " x " << shape.columns << " of rank " << rank;
    }
}

TEST(PowerSgd, ResidualAndWhatIsSentAreTheGradient) {
  std::mt19937 random(seed_of_this_run());
  for (const MatrixShape& shape : kShapes)
    for (const CodecValues values : {CodecValues::kFp32, CodecValues::kFp16, CodecValues::kBf16}) {
      auto workers = workers_of(3, power_sgd(2, values), shape);
      for (int i = 0; i < 4; ++i) {
        std::vector<Floats> gradients;
        for (size_t w = 0; w < workers.size(); ++w)
          gradients.push_back(normal_numbers(elements_of(shape), random));
        const Floats out = step(workers, gradients);
        Floats wanted(out.size(), 0.0F), kept = out;
        double size = 0;
        for (const auto& worker : workers) {
          Floats both = worker->product(worker->own_q);
          for (size_t k = 0; k < both.size(); ++k) {
            both[k] += worker->residual[k];
            wanted[k] += worker->wanted[k];
            kept[k] += worker->residual[k];
          }
          EXPECT_LE(distance(both, worker->wanted), 1e-6 * norm(worker->wanted));
          size += norm(worker->wanted);
        }
        EXPECT_LE(distance(kept, wanted), 1e-5 * size) << "nor is anything lost in the sum";
      }
    }
}

void expect_orthonormal(std::span<const float> factor, int rank) {
  const size_t length = factor.size() / static_cast<size_t>(rank);
  for (size_t a = 0; a * length < factor.size(); ++a)
    for (size_t b = 0; b <= a; ++b) {
      double dot = 0;
      for (size_t i = 0; i < length; ++i)
        dot += double{factor[a * length + i]} * factor[b * length + i];
      if (a == b && dot == 0) continue;  // nothing was left for it
      EXPECT_NEAR(dot, a == b ? 1 : 0, 1e-6) << a << " and " << b;
    }
}

TEST(PowerSgd, ColumnsOfPAreOrthonormal) {
  std::mt19937 random(seed_of_this_run());
  for (const MatrixShape& shape : kShapes)
    for (int rank = 1; rank <= 4; ++rank)
      for (const float size : {1.0F, 1e-15F, 1e12F}) {
        auto workers = workers_of(1, power_sgd(rank), shape);
        Floats gradient = normal_numbers(elements_of(shape), random);
        for (float& x : gradient) x *= size;
        step(workers, {gradient});
        const PowerSgd& power_sgd = workers[0]->power_sgd;
        expect_orthonormal(power_sgd.p(), power_sgd.rank());
      }
}

TEST(PowerSgd, ARankThatIsNotThereIsNotMadeUp) {
  std::mt19937 random(seed_of_this_run());
  const MatrixShape shape{40, 30};
  auto workers = workers_of(1, power_sgd(4), shape);
  const Floats gradient = of_rank(1, shape, random);
  const Floats out = step(workers, {gradient});
  expect_orthonormal(workers[0]->power_sgd.p(), 4);
  EXPECT_LE(distance(out, gradient), 1e-5 * norm(gradient));
}

TEST(PowerSgd, TheRankIsAtMostThatOfTheMatrix) {
  EXPECT_EQ(Worker(power_sgd(4), {2, 100}).power_sgd.rank(), 2);
  EXPECT_EQ(Worker(power_sgd(4), {100, 3}).power_sgd.rank(), 3);
  EXPECT_EQ(Worker(power_sgd(4), {100, 100}).power_sgd.rank(), 4);
}

TEST(PowerSgd, NothingIsLearntFromZerosAndNothingForgotten) {
  std::mt19937 random(seed_of_this_run());
  const MatrixShape shape{20, 30};
  auto workers = workers_of(2, power_sgd(2), shape);
  const Floats zeros(elements_of(shape), 0.0F);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(workers, {zeros, zeros}), zeros);
  EXPECT_EQ(workers[0]->residual, zeros);
  const Floats gradient = of_rank(1, shape, random);
  EXPECT_LE(distance(step(workers, {gradient, zeros}), gradient), 1e-5 * norm(gradient));
}

TEST(PowerSgd, ADivergedStepIsSeenByAllAndForgotten) {
  std::mt19937 random(seed_of_this_run());
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")})
    for (const CodecValues values : {CodecValues::kFp32, CodecValues::kFp16, CodecValues::kBf16}) {
      const MatrixShape shape{9, 11};
      auto workers = workers_of(2, power_sgd(3, values), shape);
      const auto numbers = [&] { return normal_numbers(elements_of(shape), random); };
      step(workers, {numbers(), numbers()});
      const Floats before[] = {workers[0]->residual, workers[1]->residual};
      Floats spoilt = numbers();
      spoilt[42] = bad;
      std::vector<std::span<float>> factors;
      workers[0]->gradient = spoilt;
      workers[1]->gradient = numbers();
      for (const auto& worker : workers)
        factors.push_back(worker->power_sgd.project(worker->gradient));
      sum_factors(factors, values);
      for (size_t w = 0; w < 2; ++w)
        factors[w] = workers[w]->power_sgd.orthonormalise_and_project_back();
      const std::vector<Floats> lost = sum_factors(factors, values);
      for (size_t w = 0; w < 2; ++w) {
        workers[w]->power_sgd.reconstruct(lost[w]);
        for (const float x : workers[w]->gradient) EXPECT_FALSE(std::isfinite(x));
        EXPECT_EQ(workers[w]->residual, before[w]);
      }
      const Floats out = step(workers, {numbers(), numbers()});
      for (const float x : out) EXPECT_TRUE(std::isfinite(x));
    }
}

TEST(PowerSgd, AllRanksHaveTheSameBits) {
  constexpr int kRanks = 4;
  const MatrixShape shape{48, 40};
  std::vector<std::vector<Floats>> seen(kRanks);
  const Result<Unit> run = run_inproc(kRanks, [&](Communicator& comm) -> Result<Unit> {
    const auto rank = static_cast<size_t>(comm.rank());
    std::mt19937 random(seed_of_this_run() + static_cast<uint32_t>(rank));
    Worker worker(power_sgd(2), shape);
    PowerSgd& power_sgd = worker.power_sgd;
    for (int i = 0; i < 3; ++i) {
      Floats gradient = normal_numbers(elements_of(shape), random);
      const int64_t before = comm.bytes_sent();
      MOTLEY_TRY_VOID(comm.all_reduce_sum(power_sgd.project(gradient)));
      MOTLEY_TRY_VOID(comm.all_reduce_sum(power_sgd.orthonormalise_and_project_back()));
      // 2·(n-1)/n of what is summed; it divides by the ranks.
      EXPECT_EQ((comm.bytes_sent() - before) * kRanks,
                2 * (kRanks - 1) * power_sgd_bytes(testing::codec_of(CodecKind::kPowerSgd), shape));
      power_sgd.reconstruct();
      seen[rank].emplace_back(power_sgd.p().begin(), power_sgd.p().end());
      seen[rank].emplace_back(power_sgd.q().begin(), power_sgd.q().end());
      seen[rank].push_back(gradient);
    }
    return Unit{};
  });
  ASSERT_TRUE(run) << run.error().to_string();
  for (const std::vector<Floats>& of_rank : seen) EXPECT_EQ(of_rank, seen.front());
}

TEST(PowerSgd, BeginsFromSeedAndTensorAlone) {
  std::mt19937 random(seed_of_this_run());
  const MatrixShape shape{20, 30};
  const Floats gradient = normal_numbers(elements_of(shape), random);
  const auto first_p = [&](uint64_t seed) {
    Worker worker(power_sgd(2), shape, seed);
    worker.gradient = gradient;
    const std::span<float> p = worker.power_sgd.project(worker.gradient);
    return Floats(p.begin(), p.end());
  };
  EXPECT_EQ(first_p(1), first_p(1));
  EXPECT_NE(first_p(1), first_p(2));
}

TEST(PowerSgd, FeedbackSendsEverythingInTime) {
  std::mt19937 random(seed_of_this_run());
  const MatrixShape shape{12, 16};
  constexpr int kSteps = 300;
  auto workers = workers_of(1, power_sgd(2), shape);
  const Floats gradient = normal_numbers(elements_of(shape), random);
  Floats mean(gradient.size(), 0.0F);
  for (int i = 0; i < kSteps; ++i) {
    const Floats out = step(workers, {gradient});
    for (size_t k = 0; k < out.size(); ++k) mean[k] += out[k] / kSteps;
  }
  EXPECT_LE(distance(mean, gradient), 0.05 * norm(gradient));
}

TEST(PowerSgd, VectorsAndSmallMatricesAreSentAsTheyAre) {
  const auto matrix = [](std::vector<int64_t> shape, int rank) {
    return matrix_for_power_sgd(shape, rank);
  };
  EXPECT_EQ(matrix({768}, 1), std::nullopt);
  EXPECT_EQ(matrix({}, 1), std::nullopt);
  EXPECT_EQ(matrix({12, 64, 768}, 2), (MatrixShape{768, 768}));
  EXPECT_EQ(matrix({4, 4}, 2), std::nullopt) << "its factors have as many elements";
  EXPECT_EQ(matrix({4, 4}, 1), (MatrixShape{4, 4}));
  EXPECT_EQ(matrix({2, 1000}, 2), std::nullopt);
}

}  // namespace
}  // namespace motley
