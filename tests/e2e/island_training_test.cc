// Gradients summed on the GPUs: CUDA devices (compiled for the CPU) and a stand-in for NCCL, all of
// a plan's or some beside a pipeline, against the same training through host memory.

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "comm/device_communicator.h"
#include "core/device_islands.h"
#include "tests/e2e/small_run.h"
#include "worker/train/rank_memory.h"
#include "worker/train/rank_parts.h"

namespace motley::testing {
namespace {

using ::testing::HasSubstr;

/// How often something has been called so far, on all ranks.
int calls(const char* what) {
  void* library = dlopen(kNcclLibrary, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<int (*)(const char*)>(dlsym(library, "nccl_stand_in_count"))(what);
}

/// Since it was made, of a library whose count goes on.
class Calls {
 public:
  int reduce() const { return calls("reduce") - reduce_; }
  int broadcast() const { return calls("broadcast") - broadcast_; }
  int all_reduce() const { return calls("all_reduce") - all_reduce_; }
  int left_in_good_order() const { return calls("destroy") - destroy_; }
  int all() const { return reduce() + broadcast() + all_reduce() + left_in_good_order(); }

 private:
  int reduce_ = calls("reduce"), broadcast_ = calls("broadcast");
  int all_reduce_ = calls("all_reduce"), destroy_ = calls("destroy");
};

/// NCCL's mishaps, for as long as it lives.
class Mishaps {
 public:
  explicit Mishaps(const char* orders) { setenv("MOTLEY_NCCL_STAND_IN", orders, 1); }
  ~Mishaps() { unsetenv("MOTLEY_NCCL_STAND_IN"); }
};

constexpr int kSteps = 2;

class IslandTraining : public ::testing::TestWithParam<Numerics> {
 protected:
  /// On as many GPUs as there are ranks, of these types by rank: like ones may make islands.
  Attempt attempt(const std::string& name, SmallRun run, const std::string& types) {
    run.numerics = GetParam();
    run.steps = kSteps;
    run.device = DeviceKind::kCuda;
    Attempt attempt = small_attempt(run, scratch_.path() + "/" + name);
    for (size_t i = 0; i < attempt.fleet.devices.size(); ++i) {
      attempt.fleet.devices[i].uuid = "GPU-00000000-0000-0000-0000-00000000000" + std::to_string(i);
      attempt.fleet.devices[i].type += types[i];
    }
    return attempt;
  }
  Attempt two(const std::string& name, const std::string& types) {
    return attempt(name, {.grains = {2, 1}}, types);
  }

  /// The same run with islands and without any, where the sums of either are the same. What
  /// happened in it is the caller's to look at.
  void expect_sums_as_hosts_do(const SmallRun& run, const std::string& types) {
    std::string unlike = types;
    for (size_t i = 0; i < unlike.size(); ++i) unlike[i] = static_cast<char>('a' + i);
    Recorder on_gpus, through_hosts;
    const auto here = run_small(attempt("gpus", run, types), on_gpus);
    ASSERT_TRUE(here) << here.error().to_string();
    const Calls before;
    const auto there = run_small(attempt("hosts", run, unlike), through_hosts);
    ASSERT_TRUE(there) << there.error().to_string();
    EXPECT_EQ(before.all(), 0) << "without an island";
    if (GetParam() == Numerics::kExact) {
      EXPECT_EQ(here->weights_xxh3, there->weights_xxh3);
      EXPECT_EQ(on_gpus.loss_bits(), through_hosts.loss_bits());
    } else {  // in another order
      expect_near(on_gpus, through_hosts);
    }
  }

  static void expect_near(const Recorder& one, const Recorder& other) {
    for (int64_t step = 1; step <= kSteps; ++step) {
      const StepReport& here = one.account(0).steps.at(step);
      const StepReport& there = other.account(0).steps.at(step);
      EXPECT_NEAR(here.loss, there.loss, 1e-5 * there.loss) << "step " << step;
      EXPECT_NEAR(here.gradient_norm, there.gradient_norm, 1e-4 * there.gradient_norm) << step;
    }
  }

  TemporaryDirectory scratch_;
};

/// The model on each of so many GPUs, and on two more in two stages.
SmallRun hybrid(int whole, bool shard_optimizer = false) {
  SmallRun run;
  for (int i = 0; i < whole; ++i)
    run.replicas.push_back({.stages = {{.layers = 4}}, .grains = 2 - i % 2});
  run.replicas.push_back({.stages = {{.layers = 1}, {.layers = 3}}, .grains = 2});
  run.shard_optimizer = shard_optimizer;
  return run;
}

TEST_P(IslandTraining, SumsAsHostsDo) {
  Recorder on_gpus, through_hosts;
  const Calls so_far;
  const auto here = run_small(two("gpus", "aa"), on_gpus);
  ASSERT_TRUE(here) << here.error().to_string();
  EXPECT_EQ(so_far.all_reduce(), 2 * kSteps) << "it did not go through NCCL";
  EXPECT_EQ(so_far.left_in_good_order(), 2);
  EXPECT_EQ(so_far.reduce() + so_far.broadcast(), 0) << "nobody else has a part in it";
  const auto there = run_small(two("hosts", "ab"), through_hosts);
  ASSERT_TRUE(there) << there.error().to_string();
  EXPECT_EQ(so_far.left_in_good_order(), 2);
  // Of two terms the sum is the same in either order, whatever the numerics.
  EXPECT_EQ(here->weights_xxh3, there->weights_xxh3);
  EXPECT_EQ(on_gpus.loss_bits(), through_hosts.loss_bits());
}

TEST_P(IslandTraining, FourBesideAPipelineOfTwo) {
  const Calls so_far;
  expect_sums_as_hosts_do(hybrid(4), "aaaabb");
  EXPECT_EQ(so_far.reduce(), 4 * kSteps);
  EXPECT_EQ(so_far.broadcast(), 4 * kSteps);
  EXPECT_EQ(so_far.all_reduce(), 0);
  EXPECT_EQ(so_far.left_in_good_order(), 4);
}

TEST_P(IslandTraining, FourBesideAPipelineOfTwoWithShardedState) {
  const Calls so_far;
  expect_sums_as_hosts_do(hybrid(4, true), "aaaabb");
  EXPECT_EQ(so_far.all_reduce(), 4 * kSteps);
  EXPECT_EQ(so_far.reduce() + so_far.broadcast(), 0);
}

/// All alike: those that hold the model, and each stage's of the pipelines, where the first and the
/// last hold the word embedding.
TEST_P(IslandTraining, StagesOfPipelines) {
  SmallRun run = hybrid(2);
  run.replicas.push_back(run.replicas.back());
  const Calls so_far;
  expect_sums_as_hosts_do(run, "aaaaaa");
  EXPECT_EQ(so_far.reduce(), 6 * kSteps);
  EXPECT_EQ(so_far.broadcast(), 6 * kSteps);
}

TEST_P(IslandTraining, AnIslandThatDoesNotConnectIsLeftToTheHosts) {
  const Mishaps mishaps("init_fails=0 init_fails=1");
  const Calls so_far;
  expect_sums_as_hosts_do(hybrid(2), "aabb");
  EXPECT_EQ(so_far.reduce() + so_far.broadcast() + so_far.all_reduce(), 0);
}

TEST_P(IslandTraining, MemoryIsAsEstimated) {
  for (const bool sharded : {false, true}) {
    const Attempt mixed = attempt("memory", hybrid(4, sharded), "aaaabb");
    const DeviceIslands islands = device_islands(mixed.plan, mixed.fleet);
    const auto ended = run_inproc(6, [&](Communicator& world) -> Result<Unit> {
      MOTLEY_TRY(const auto parts, build_rank(mixed, world));
      const MemoryEstimate estimate = estimate_rank(mixed.job, mixed.plan, Rank(world.rank()),
                                                    traits_of(*parts->device), islands);
      EXPECT_EQ(parts->memory.held(MemoryUse::kExchange), estimate.exchange);
      EXPECT_EQ(parts->memory.held(MemoryUse::kHost), estimate.host);
      const MemoryEstimate without =
          estimate_rank(mixed.job, mixed.plan, Rank(world.rank()), traits_of(*parts->device));
      // Three of the four need no view of their gradients.
      if (!sharded && world.rank() > 0 && world.rank() < 4) {
        EXPECT_LT(estimate.host, without.host);
      }
      return world.barrier();
    });
    EXPECT_TRUE(ended) << ended.error().to_string();
  }
}

TEST_P(IslandTraining, ALostPeerEndsTheAttempt) {
  const Mishaps mishaps("fails_at=0:1 fails_at=1:1");
  for (const Attempt& lost : {two("lost", "aa"), attempt("lost", hybrid(2), "aabb")}) {
    Recorder recorder;
    const auto ended = run_small(lost, recorder);
    ASSERT_FALSE(ended);
    EXPECT_EQ(ended.error().code, ErrorCode::kPeerLost);
    EXPECT_THAT(ended.error().message, HasSubstr("NCCL"));
  }
}

INSTANTIATE_TEST_SUITE_P(All, IslandTraining, ::testing::Values(Numerics::kFast, Numerics::kExact),
                         [](const auto& of) {
                           return of.param == Numerics::kExact ? "Exact" : "Fast";
                         });

}  // namespace
}  // namespace motley::testing
