// Random plans, trained by the real engine over sends that are complete only when received (see
// pipeline_order_test.cc): they end, hold as many micro-batches as foretold, and compute the same.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/e2e/small_run.h"
#include "tests/support/checked_posts.h"
#include "tests/support/new_seeds.h"
#include "tests/support/random_cases.h"
#include "worker/train/rank_share.h"

namespace motley::testing {
namespace {

constexpr uint32_t kFixedPlans = random_cases(24);
constexpr int kNewPlans = 4;

class RandomPlan {
 public:
  explicit RandomPlan(uint32_t seed) : random_(seed) {
    run_.model = {"gpt", draw(1, 5), 4, 16, 8, 256};
    run_.steps = 3;
    run_.samples_missing = draw(0, run_.grain - 1);
    run_.shard_optimizer = draw(0, 2) == 0;
    for (int replicas = draw(1, 3); replicas > 0; --replicas) add_replica();
    for (int rank = 0; rank < ranks_; ++rank) run_.speeds.push_back(draw(1, 20) * 0.1);
  }

  const SmallRun& run() const { return run_; }
  /// The same job on one rank.
  SmallRun alone() const {
    SmallRun whole = run_;
    int grains = 0;
    for (const SmallReplica& replica : run_.replicas) grains += replica.grains;
    whole.replicas = {{.stages = {{run_.model.layers + 2}}, .grains = grains}};
    whole.speeds = {};
    return whole;
  }

 private:
  void add_replica() {
    SmallReplica replica;
    for (int rest = run_.model.layers + 2; rest > 0; rest -= replica.stages.back().layers) {
      SmallReplica::Stage stage{.layers = draw(1, std::min(rest, 4))};
      if (draw(0, 4) == 0) stage.shares = {0.75, 0.25};
      if (draw(0, 3) == 0)
        stage.recompute.assign(static_cast<size_t>(stage.layers), Recompute::kBlock);
      ranks_ += static_cast<int>(stage.shares.size());
      replica.stages.push_back(stage);
    }
    replica.micro_batch_grains = draw(1, 3);
    replica.grains = draw(2, 9);  // a batch of one that lacks a sample would be no whole grain
    run_.replicas.push_back(replica);
  }
  int draw(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }

  std::mt19937 random_;
  SmallRun run_;
  int ranks_ = 0;
};

Result<Unit> train_with_checked_posts(const Attempt& attempt, Recorder& recorder) {
  return run_inproc(attempt.plan.world_size(), [&](Communicator& inner) -> Result<Unit> {
    size_t most_open = 0;
    const auto world = checked_posts(inner, &most_open);
    ControlWishes wishes;
    MOTLEY_TRY_VOID(train(attempt, *world, recorder.of(world->rank()), wishes, real_file_system()));
    return Unit{};
  });
}

/// Micro-batches between forward and backward pass, at most.
int most_in_flight(const nlohmann::json& trace) {
  std::set<int> open;  // a pass is in pieces where ranks that share its stage sum within it
  size_t most = 0;
  for (const auto& event : trace) {
    const std::string name = event["name"];
    if (name.starts_with("forward")) open.insert(event["args"]["micro_batch"].get<int>());
    if (name.starts_with("backward")) open.erase(event["args"]["micro_batch"].get<int>());
    most = std::max(most, open.size());
  }
  return static_cast<int>(most);
}

class PipelinePlans : public ::testing::Test {
 protected:
  void expect_to_train(uint32_t seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RandomPlan plan(seed);
    const std::string directory = scratch_.path() + "/" + std::to_string(seed);
    Attempt attempt = small_attempt(plan.run(), directory + "/cut");
    attempt.trace = true;
    const auto valid = validate(attempt.plan, attempt.job.model);
    ASSERT_TRUE(valid) << valid.error().to_string();
    Recorder cut, whole;
    const auto ended = train_with_checked_posts(attempt, cut);
    ASSERT_TRUE(ended) << ended.error().to_string();
    for (int rank = 0; rank < attempt.plan.world_size(); ++rank)
      EXPECT_EQ(most_in_flight(trace_of(attempt, rank)),
                share_of(attempt.plan, Rank(rank), 0).in_flight)
          << "rank " << rank;
    ASSERT_TRUE(run_small(small_attempt(plan.alone(), directory + "/alone"), whole));
    for (const auto& [step, report] : whole.account(0).steps)
      EXPECT_NEAR(cut.account(0).steps.at(step).loss, report.loss, 1e-4 * report.loss) << step;
  }

  TemporaryDirectory scratch_;
};

TEST_F(PipelinePlans, TrainAsOneRankDoes) {
  for (uint32_t seed = 1; seed <= kFixedPlans; ++seed) expect_to_train(seed);
}

TEST_F(PipelinePlans, AlsoWithNewSeeds) {
  for_new_seeds(kNewPlans, [&](uint32_t seed) { expect_to_train(seed); });
}

}  // namespace
}  // namespace motley::testing
