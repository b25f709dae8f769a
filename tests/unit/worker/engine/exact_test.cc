// numerics: exact. The weights' bits after many steps do not depend on threads or on who computed
// which grain.

#include "worker/engine/exact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "tests/unit/worker/engine/engine_fixture.h"
#include "worker/optimizer/schedule.h"

namespace motley::testing {
namespace {

constexpr int kGrain = 2;
constexpr int kGrains = 6;
constexpr int kGlobalBatch = kGrain * kGrains - 1;  // the last grain of a step is short

struct Grain {
  int first = 0, samples = 0;
};

Grain grain_at(int number) {
  const int first = number * kGrain;
  return {first, std::min(kGrain, kGlobalBatch - first)};
}

/// Several ranks of data parallelism in one thread: rank r computes groups[r] grains and all apply
/// the same update.
class ExactFleet {
 public:
  ExactFleet(const ModelSpec& model, std::vector<int> groups, int threads, int exponent)
      : model_(model), groups_(std::move(groups)) {
    EngineOptions options = options_for(model, {kGrain, 1}, Numerics::kExact);
    options.optimizer.lr = 1e-2;
    for (size_t rank = 0; rank < groups_.size(); ++rank) {
      devices_.push_back(device_of(DeviceKind::kCpu, threads));
      engines_.push_back(engine_on(*devices_.back(), options));
      engines_.back()->set_exact_exponent(exponent);
    }
  }

  void train(int steps) {
    for (int step = 1; step <= steps; ++step) {
      while (!compute(step)) ++repeated_;
      update(step);
    }
  }

  /// The same on every rank, or a failed test.
  std::string weights_hash() {
    const std::string hash = weights_hash_of(*engines_[0], model_);
    for (const auto& engine : engines_) EXPECT_EQ(weights_hash_of(*engine, model_), hash);
    return hash;
  }
  int64_t last_loss() const { return loss_; }
  int repeated() const { return repeated_; }

 private:
  /// Forward and backward everywhere, then the sum over ranks; false after an overflow, with a
  /// lower exponent set.
  bool compute(int step) {
    const auto tokens = random_tokens(model_, kGlobalBatch, static_cast<uint64_t>(step));
    const auto length = static_cast<size_t>(model_.context) + 1;
    int number = 0;
    loss_ = 0;
    int64_t overflow = 0;
    for (size_t rank = 0; rank < groups_.size(); ++rank) {
      engines_[rank]->begin_step();
      for (int i = 0; i < groups_[rank]; ++i) {
        const Grain grain = grain_at(number++);
        const auto part = std::span(tokens).subspan(static_cast<size_t>(grain.first) * length,
                                                    static_cast<size_t>(grain.samples) * length);
        EXPECT_TRUE(run_micro_batch(*engines_[rank], part, grain.samples));
      }
      loss_ += engines_[rank]->sums()->loss_fixed;
      overflow |= engines_[rank]->sums()->overflow;
    }
    if (overflow == 0) return sum_over_ranks();
    for (const auto& engine : engines_)
      engine->set_exact_exponent(engine->next_exact_exponent(true));
    return false;
  }

  bool sum_over_ranks() {
    std::vector<std::span<int64_t>> parts;
    for (const auto& engine : engines_) parts.push_back(engine->gradients()->fixed);
    for (size_t i = 0; i < parts[0].size(); ++i) {
      int64_t sum = 0;
      for (const auto& part : parts) sum += part[i];
      for (const auto& part : parts) part[i] = sum;
    }
    return true;
  }

  void update(int step) {
    const int64_t tokens = int64_t{kGlobalBatch} * model_.context;
    for (const auto& engine : engines_) {
      const double norm = gradient_norm_of(*engine, tokens);
      EXPECT_TRUE(engine->update(step, 1e-2, tokens, clip_factor(1.0, norm)));
      engine->set_exact_exponent(engine->next_exact_exponent(false));
    }
  }

  ModelSpec model_;
  std::vector<int> groups_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Engine>> engines_;
  int64_t loss_ = 0;
  int repeated_ = 0;
};

struct Outcome {
  std::string weights;
  int64_t loss;
  bool operator==(const Outcome&) const = default;
};

Outcome train(std::vector<int> groups, int threads, int steps = 20,
              int exponent = kFirstExactExponent) {
  ExactFleet fleet(tiny_model(), std::move(groups), threads, exponent);
  fleet.train(steps);
  return {fleet.weights_hash(), fleet.last_loss()};
}

/// Every way of writing kGrains as an ordered sum of positive shares.
std::vector<std::vector<int>> all_deals(int grains) {
  std::vector<std::vector<int>> deals;
  for (int first = 1; first < grains; ++first) {
    for (std::vector<int> rest : all_deals(grains - first)) {
      rest.insert(rest.begin(), first);
      deals.push_back(rest);
    }
  }
  deals.push_back({grains});
  return deals;
}

TEST(Exact, ThreadsDoNotMatter) {
  const Outcome one = train({kGrains}, 1);
  EXPECT_EQ(train({kGrains}, 2), one);
  EXPECT_EQ(train({kGrains}, 3), one);
}

/// Matrices of several tiles and rows of several blocks: threads really share the work.
TEST(Exact, ThreadsDoNotMatterInALargerModel) {
  ModelSpec model;
  model.layers = 1;
  model.heads = 4;
  model.width = 144;
  model.context = 130;
  model.vocab = 517;
  std::vector<std::string> hashes;
  for (const int threads : {1, 2, 3}) {
    ExactFleet fleet(model, threads == 3 ? std::vector<int>{5, 1} : std::vector<int>{kGrains},
                     threads, kFirstExactExponent);
    fleet.train(3);
    hashes.push_back(fleet.weights_hash());
  }
  EXPECT_THAT(hashes, ::testing::Each(hashes[0]));
}

TEST(Exact, HowGrainsAreDealtDoesNotMatter) {
  const auto deals = all_deals(kGrains);
  ASSERT_EQ(deals.size(), 32u);
  const Outcome alone = train({kGrains}, 1);
  for (const std::vector<int>& groups : deals)
    EXPECT_EQ(train(groups, 1), alone) << ::testing::PrintToString(groups);
}

TEST(Exact, ARankWithoutGrainsChangesNothing) {
  EXPECT_EQ(train({2, 0, 4}, 2), train({kGrains}, 1));
}

TEST(Exact, LearnsAsFastDoes) {
  const auto device = device_of(DeviceKind::kCpu);
  const auto fast = engine_on(*device, options_for(tiny_model(), {kGlobalBatch}));
  const auto exact =
      engine_on(*device, options_for(tiny_model(), {kGlobalBatch}, Numerics::kExact));
  for (int step = 1; step <= 20; ++step) {
    const auto tokens = random_tokens(tiny_model(), kGlobalBatch, 1);
    for (Engine* engine : {fast.get(), exact.get()}) {
      engine->begin_step();
      ASSERT_TRUE(run_micro_batch(*engine, tokens, kGlobalBatch));
      const double norm = gradient_norm_of(*engine, engine->sums()->tokens);
      ASSERT_TRUE(engine->update(step, 1e-2, engine->sums()->tokens, clip_factor(1.0, norm)));
    }
    exact->set_exact_exponent(exact->next_exact_exponent(false));
    EXPECT_NEAR(static_cast<double>(exact->sums()->loss_fixed) / kLossUnit, fast->sums()->loss,
                1e-4 * fast->sums()->loss)
        << "step " << step;
  }
}

TEST(Exact, OverflowRepeatsTheStepAsIfItHadBegunLower) {
  constexpr int absurd = 60;
  ExactFleet overflowing(tiny_model(), {4, 2}, 1, absurd);
  overflowing.train(5);
  EXPECT_GT(overflowing.repeated(), 0);
  ExactFleet lower(tiny_model(), {kGrains}, 1, absurd - 16 * overflowing.repeated());
  lower.train(5);
  EXPECT_EQ(lower.repeated(), 0);
  EXPECT_EQ(overflowing.weights_hash(), lower.weights_hash());
}

TEST(Exact, AGradientThatIsNotFiniteOverflows) {
  const auto device = device_of(DeviceKind::kCpu);
  const auto engine = engine_on(*device, options_for(tiny_model(), {1}, Numerics::kExact));
  state_of<float>(*engine, Engine::State::kWeight)[0] = std::numeric_limits<float>::quiet_NaN();
  std::vector<int32_t> tokens(6, 0);
  engine->begin_step();
  ASSERT_TRUE(run_micro_batch(*engine, tokens, 1));
  EXPECT_EQ(engine->sums()->overflow, 1);
  engine->begin_step();
  EXPECT_EQ(engine->sums()->overflow, 0);
}

TEST(ExactExponent, BringsTheLargestGradientToItsTarget) {
  for (const uint64_t largest : {uint64_t{1}, uint64_t{1000}, uint64_t{1} << 50}) {
    const int next = next_exponent(24, largest);
    const double scaled = std::ldexp(static_cast<double>(largest), next - 24);
    EXPECT_GE(scaled, std::ldexp(1.0, 35));
    EXPECT_LT(scaled, std::ldexp(1.0, 36));
  }
  EXPECT_EQ(next_exponent(24, 0), 24);
  EXPECT_EQ(lowered_exponent(24), 8);
}

TEST(ExactExponent, StaysWithinTheRangeOfFloats) {
  EXPECT_LE(next_exponent(119, 1), 126);
  EXPECT_GE(lowered_exponent(lowered_exponent(-119)), -126);
}

/// The norm is of integers: any slicing gives the same bits, and they are right.
RC_GTEST_PROP(ExactMagnitude, EqualsTheNormInDouble, ()) {
  const auto device = device_of(DeviceKind::kReference);
  const int bits = *rc::gen::inRange(1, 62);
  std::vector<int64_t> values(*rc::gen::inRange<size_t>(1, 50));
  double sum = 0;
  for (int64_t& value : values) {
    const int64_t limit = int64_t{1} << bits;
    value = *rc::gen::inRange<int64_t>(-limit, limit);
    sum += static_cast<double>(value) * static_cast<double>(value);
  }
  const uint64_t largest = largest_magnitude(*device, values);
  const double norm = squares_of(*device, values, largest).root(largest);
  RC_ASSERT(std::abs(norm - std::sqrt(sum)) <= 1e-8 * std::sqrt(sum));
}

TEST(ExactMagnitude, HoldsTheLowestInteger) {
  const auto device = device_of(DeviceKind::kReference);
  const std::vector<int64_t> values = {std::numeric_limits<int64_t>::min(), 5};
  const uint64_t largest = largest_magnitude(*device, values);
  EXPECT_EQ(largest, uint64_t{1} << 63);
  EXPECT_EQ(squares_of(*device, values, largest).root(largest), std::ldexp(1.0, 63));
}

}  // namespace
}  // namespace motley::testing
