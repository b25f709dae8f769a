// What a plan says its ranks need is what they allocate: counted before anything runs, compared
// with every buffer of the engines that would train.

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "tests/e2e/small_run.h"
#include "worker/engine/engine.h"
#include "worker/train/rank_parts.h"

namespace motley::testing {
namespace {

struct Cut {
  std::string name;
  std::vector<SmallReplica> replicas;
  bool shard_optimizer = false;
  bool host_optimizer = false;
  Numerics numerics = Numerics::kFast;
};

std::vector<Recompute> all_of(int layers, Recompute part) {
  return std::vector<Recompute>(static_cast<size_t>(layers), part);
}

/// Of a model with eight layers.
std::vector<Cut> cuts() {
  return {
      {"whole", {{.stages = {{8}}, .grains = 5, .micro_batch_grains = 2}}},
      {"pipeline", {{.stages = {{3}, {3}, {2}}, .grains = 7}}},
      {"pipeline, short last",
       {{.stages = {{5}, {3}}, .grains = 7, .micro_batch_grains = 3}},
       true},
      {"tensor", {{.stages = {{8, {0.75, 0.25}}}, .grains = 4}}},
      {"unlike, sharded",
       {{.stages = {{8}}, .grains = 4}, {.stages = {{2, {0.5, 0.5}}, {6}}, .grains = 3}},
       true},
      {"recomputing, state in host memory",
       {{.stages = {{4, {1}, all_of(4, Recompute::kBlock)}, {4, {1}, all_of(4, Recompute::kMlp)}},
         .grains = 6}},
       false,
       true},
      {"exact", {{.stages = {{4}, {4}}, .grains = 5}}, false, false, Numerics::kExact},
  };
}

Attempt attempt_of(const Cut& cut, const std::string& directory) {
  SmallRun run;
  run.model = {.type = "gpt", .layers = 6, .heads = 4, .width = 32, .context = 16, .vocab = 256};
  run.replicas = cut.replicas;
  run.shard_optimizer = cut.shard_optimizer;
  run.host_optimizer = cut.host_optimizer;
  run.numerics = cut.numerics;
  return small_attempt(run, directory);
}

std::vector<Bytes> predicted(const Attempt& attempt) {
  std::vector<Bytes> bytes;
  for (int rank = 0; rank < attempt.plan.world_size(); ++rank)
    bytes.push_back(
        estimate_engine(engine_options(attempt.job, attempt.plan, Rank(rank)), DeviceKind::kCpu, 1)
            .total());
  return bytes;
}

/// Of the engines as ranks set themselves up to train.
Result<std::vector<Bytes>> allocated(const Attempt& attempt) {
  std::mutex mutex;
  std::vector<Bytes> bytes(attempt.plan.ranks.size());
  MOTLEY_TRY_VOID(run_inproc(attempt.plan.world_size(), [&](Communicator& world) -> Result<Unit> {
    MOTLEY_TRY(const auto parts, build_rank(attempt, world));
    const std::lock_guard lock(mutex);
    bytes[static_cast<size_t>(world.rank())] = parts->engine->memory().total();
    return Unit{};
  }));
  return bytes;
}

class PlanMemory : public ::testing::Test {
 protected:
  TemporaryDirectory scratch_;
};

TEST_F(PlanMemory, IsWhatTheRanksAllocate) {
  for (const Cut& cut : cuts()) {
    SCOPED_TRACE(cut.name);
    Attempt attempt = attempt_of(cut, scratch_.path() + "/" + cut.name);
    const std::vector<Bytes> expected = predicted(attempt);
    for (size_t rank = 0; rank < expected.size(); ++rank)
      attempt.fleet.devices[rank].memory = expected[rank];  // not a byte to spare
    const auto actual = allocated(attempt);
    ASSERT_TRUE(actual) << actual.error().to_string();
    EXPECT_EQ(*actual, expected);

    attempt.fleet.devices.back().memory = expected.back() - Bytes(1);
    const auto refused = allocated(attempt);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kDeviceLost);
  }
}

TEST_F(PlanMemory, RecomputingAndSharingNeedLess) {
  const auto total = [&](const SmallReplica& replica) {
    return predicted(attempt_of({.name = "", .replicas = {replica}}, scratch_.path())).front();
  };
  const SmallReplica two_stages{.stages = {{4}, {4}}, .grains = 6};
  SmallReplica recomputing = two_stages;
  recomputing.stages[0].recompute = all_of(4, Recompute::kBlock);
  SmallReplica shared = two_stages;
  shared.stages[0].shares = {0.5, 0.5};
  EXPECT_LT(total(recomputing), total(two_stages));
  EXPECT_LT(total(shared), total(two_stages));
  EXPECT_LT(total(two_stages), total({.stages = {{8}}, .grains = 6}));
}

}  // namespace
}  // namespace motley::testing
