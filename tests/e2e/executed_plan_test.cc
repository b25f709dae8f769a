// What ranks do is what their plan says: the samples they compute, the bytes they put on wires.
// (The bytes they hold: plan_memory_test.cc.)

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "planner/costs/slice_traffic.h"
#include "tests/e2e/small_run.h"
#include "worker/train/rank_parts.h"
#include "worker/train/stepper.h"

namespace motley::testing {
namespace {

constexpr int kSteps = 2;
/// Of the loss, the norm and what ranks agree on in a step; of when a message was sent.
constexpr int64_t kMostBesides = 1024;

struct Case {
  std::string name;
  std::vector<SmallReplica> replicas;
  bool shard_optimizer = false;
  Precision precision = Precision::kFp32;
  CodecKind compress = CodecKind::kOff;
};

/// Two replicas at most: with more, sums may go in ways that put more on wires in less time.
std::vector<Case> cases() {
  return {
      {"uneven pair", {{.stages = {{4}}, .grains = 5}, {.stages = {{4}}, .grains = 2}}},
      {"pipeline", {{.stages = {{2}, {1}, {1}}, .grains = 6, .micro_batch_grains = 2}}},
      {"bf16", {{.stages = {{2}, {2}}, .grains = 4}}, false, Precision::kBf16},
      {"unlike", {{.stages = {{4}}, .grains = 4}, {.stages = {{1}, {3}}, .grains = 3}}},
      {"unlike, sharded",
       {{.stages = {{4}}, .grains = 4}, {.stages = {{2}, {2}}, .grains = 3}},
       true},
      {"recomputed",
       {{.stages = {{2, {1}, {Recompute::kNone, Recompute::kBlock}}, {2}}, .grains = 4}}},
      {"compressed",
       {{.stages = {{4}}, .grains = 4}, {.stages = {{1}, {3}}, .grains = 3}},
       false,
       Precision::kFp32,
       CodecKind::kInt8},
      {"shared", {{.stages = {{2, {0.5, 0.5}}, {2}}, .grains = 4}, {.stages = {{4}}, .grains = 2}}},
  };
}

Attempt attempt_of(const Case& made, const std::string& directory) {
  SmallRun run;
  run.replicas = made.replicas;
  run.shard_optimizer = made.shard_optimizer;
  run.precision = made.precision;
  run.compress.kind = made.compress;
  int ranks = 0;
  for (const SmallReplica& replica : made.replicas)
    for (const SmallReplica::Stage& stage : replica.stages)
      for (size_t i = 0; i < stage.shares.size(); ++i) run.hosts.push_back(ranks++);
  Attempt attempt = small_attempt(run, directory);
  for (size_t i = 0; i < attempt.fleet.devices.size(); ++i)
    attempt.fleet.devices[i].uuid = "GPU-00000000-0000-0000-0000-00000000000" + std::to_string(i);
  return attempt;
}

/// Of one rank in a step.
struct Done {
  int samples = 0;
  int64_t slice_bytes = 0;     ///< of gradients; where every holder keeps state, of their sums too
  int64_t boundary_bytes = 0;  ///< of activations and their gradients
};

std::vector<Done> planned(const Attempt& attempt) {
  const Plan& plan = attempt.plan;
  const ModelSpec& model = attempt.job.model;
  std::vector<Done> ranks;
  for (const SliceTraffic& traffic : slice_traffic(plan, model).ranks)
    ranks.push_back({.slice_bytes = traffic.sent * int64_t{sizeof(float)}});
  for (const ReplicaPlan& replica : plan.replicas)
    for (size_t i = 0; i < replica.stages.size(); ++i) {
      const StagePlan& stage = replica.stages[i];
      const int samples = replica.grains * plan.grain;
      for (const Rank rank : stage.ranks)
        ranks[static_cast<size_t>(rank.value())].samples = samples;
      // To each rank of the stages beside it, in turns of its own ranks.
      const int element = stage.precision == Precision::kBf16 ? 2 : 4;
      for (const size_t beside : {i - 1, i + 1}) {
        if (beside >= replica.stages.size()) continue;  // also what is before the first
        for (size_t to = 0; to < replica.stages[beside].ranks.size(); ++to) {
          const Rank from = stage.ranks[to % stage.ranks.size()];
          ranks[static_cast<size_t>(from.value())].boundary_bytes +=
              int64_t{samples} * model.context * model.width * element;
        }
      }
    }
  return ranks;
}

std::vector<Done> executed(const Attempt& attempt) {
  std::mutex mutex;
  std::vector<Done> ranks(attempt.plan.ranks.size());
  const auto ran = run_inproc(attempt.plan.world_size(), [&](Communicator& world) -> Result<Unit> {
    MOTLEY_TRY(const auto parts, build_rank(attempt, world));
    Stepper stepper(attempt, *parts, world, [] {});
    parts->sections.open();
    const int64_t before = world.bytes_sent();
    Done done;
    for (int64_t step = 1; step <= kSteps; ++step) {
      MOTLEY_TRY(const StepResult result, stepper.run(step, {}));
      done.samples = result.samples;
    }
    done.slice_bytes = parts->slices->bytes_sent() / kSteps;
    done.boundary_bytes = (world.bytes_sent() - before) / kSteps;
    const std::lock_guard lock(mutex);
    ranks[static_cast<size_t>(world.rank())] = done;
    return Unit{};
  });
  EXPECT_TRUE(ran) << (ran ? "" : ran.error().to_string());
  return ranks;
}

TEST(ExecutedPlan, IsThePlannedOne) {
  const TemporaryDirectory scratch;
  for (const Case& made : cases()) {
    SCOPED_TRACE(made.name);
    const Attempt attempt = attempt_of(made, scratch.path() + "/" + made.name);
    const std::vector<Done> expected = planned(attempt), actual = executed(attempt);
    int64_t sums_planned = 0, sums = 0;  // whose turn it is to add up is left to the reduction
    for (size_t rank = 0; rank < expected.size(); ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      EXPECT_EQ(actual[rank].samples, expected[rank].samples);
      EXPECT_GE(actual[rank].boundary_bytes, expected[rank].boundary_bytes);
      EXPECT_LE(actual[rank].boundary_bytes, expected[rank].boundary_bytes + kMostBesides);
      sums_planned += expected[rank].slice_bytes;
      sums += actual[rank].slice_bytes;
    }
    // Gradients to owners are half of what slice_traffic() counts, the new weights the other.
    if (made.shard_optimizer) sums_planned /= 2;
    const double sent = shortened_links(attempt.plan.compression, attempt.job.model).bytes_ratio;
    EXPECT_NEAR(static_cast<double>(sums), sent * static_cast<double>(sums_planned), kMostBesides);
  }
}

}  // namespace
}  // namespace motley::testing
