// The contract of plan search, and the real search against the exhaustive one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "planner/plain/grain_search.h"
#include "planner/plain/search.h"
#include "tests/support/planning_case.h"

namespace motley {
namespace {

using testing::PlanningCase;
using testing::random_case;

using Search = Result<Plan> (*)(const PlanRequest&);

struct Form {
  const char* name;
  Search search;
};

class PlanSearch : public ::testing::TestWithParam<Form> {
 protected:
  Result<Plan> plan(const PlanningCase& problem) const {
    return GetParam().search(problem.request());
  }
};

INSTANTIATE_TEST_SUITE_P(Forms, PlanSearch,
                         ::testing::Values(Form{"real", plan_search},
                                           Form{"exhaustive", plan_exhaustive}),
                         [](const auto& form) { return std::string(form.param.name); });

TEST_P(PlanSearch, SplitsInProportionToSpeed) {
  PlanningCase problem(12);
  problem.add({.fixed = 0, .per_sample = 0.010}).add({.fixed = 0, .per_sample = 0.020});
  const Result<Plan> found = plan(problem);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_DOUBLE_EQ(found->prediction.step_seconds, 0.080);
  EXPECT_EQ(samples_of(*found, 0).count, 8);
  EXPECT_EQ(samples_of(*found, 1).count, 4);
}

TEST_P(PlanSearch, LeavesOutADeviceThatCostsMoreThanItBrings) {
  PlanningCase problem(8);
  problem.add({.per_sample = 0.010}).add({.type = "old", .per_sample = 0.500});
  const Result<Plan> found = plan(problem);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->world_size(), 1);
  EXPECT_EQ(found->ranks[0].device, "localhost/0");
}

TEST_P(PlanSearch, ReductionCanMakeOneDeviceEnough) {
  PlanningCase problem(8);
  problem.add({.per_sample = 0.010}).add({.per_sample = 0.010}).add_reduction(2, 0.1);
  const Result<Plan> found = plan(problem);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->world_size(), 1);
}

TEST_P(PlanSearch, UpdatesDoNotWaitForEachOther) {
  PlanningCase problem(12);
  problem.add({.fixed = 0, .per_sample = 0.010})
      .add({.fixed = 0, .per_sample = 0.010, .update = 0.040})
      .add_reduction(2, 0.005);
  const Result<Plan> found = plan(problem);
  ASSERT_TRUE(found) << found.error().message;
  // 8 : 4, both 80 ms from one reduction to the next.
  EXPECT_EQ(samples_of(*found, 0).count, 8);
  EXPECT_DOUBLE_EQ(found->prediction.step_seconds, 0.085);
  for (const RankPrediction& rank : found->prediction.ranks) {
    EXPECT_NEAR(rank.section_seconds(), 0.080, 1e-12);
    EXPECT_NEAR(rank.wait_seconds, 0, 1e-12);
  }
}

TEST_P(PlanSearch, PlansAreValidAndMicroBatchesFitMemory) {
  std::mt19937 random(7);
  for (int i = 0; i < 40; ++i) {
    const PlanningCase problem = random_case(random, 3);
    const Result<Plan> found = plan(problem);
    if (!found) {
      EXPECT_EQ(found.error().code, ErrorCode::kNoPlan) << found.error().message;
      continue;
    }
    const Result<Unit> valid = validate(*found, problem.job.model);
    EXPECT_TRUE(valid) << valid.error().message;
    int samples = 0;
    for (size_t r = 0; r < found->replicas.size(); ++r) {
      samples += samples_of(*found, static_cast<int>(r)).count;
    }
    EXPECT_EQ(samples, problem.job.train.global_batch);
  }
}

TEST_P(PlanSearch, ExactComputesOneGrainAtATime) {
  PlanningCase problem(16);
  problem.job.train.numerics = Numerics::kExact;
  problem.job.train.grain = 2;
  problem.add({.fixed = 0.05}).add({.fixed = 0.05});
  const Result<Plan> found = plan(problem);
  ASSERT_TRUE(found) << found.error().message;
  for (const ReplicaPlan& replica : found->replicas) EXPECT_EQ(replica.micro_batch, 2);
}

TEST_P(PlanSearch, ExactWithoutAGrainIsRefused) {
  PlanningCase problem(16);
  problem.job.train.numerics = Numerics::kExact;
  problem.add({});
  EXPECT_EQ(plan(problem).error().code, ErrorCode::kInvalidSpec);
}

/// A model of four million parameters: the snapshot of a checkpoint is 48 MB, of each of two ranks
/// half, and what these exchange at a time 4 MB.
PlanningCase with_snapshots() {
  PlanningCase problem(8);
  problem.job.model = {"gpt", 1, 2, 512, 16, 1500};
  problem.add({.per_sample = 0.010}).add({.per_sample = 0.010}).add_reduction(2, 0.1);
  for (DeviceProfile& device : problem.profile.devices) device.memory_limit = Bytes(60 << 20);
  return problem;
}

TEST_P(PlanSearch, SnapshotsAndMessagesCountAgainstTheMemoryOfCpus) {
  PlanningCase problem = with_snapshots();
  const Result<Plan> found = plan(problem);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->world_size(), 2) << "one would be quicker, but has no room for the snapshot";
  for (const RankPrediction& rank : found->prediction.ranks) {
    EXPECT_GT(rank.memory, Bytes(45 << 20));
    EXPECT_LE(rank.memory, Bytes(57 << 20));
    EXPECT_EQ(rank.host_memory, Bytes(0));
  }
  for (DeviceProfile& device : problem.profile.devices) device.memory_limit = Bytes(80 << 20);
  EXPECT_EQ(plan(problem)->world_size(), 1);
  for (DeviceProfile& device : problem.profile.devices) device.memory_limit = Bytes(45 << 20);
  EXPECT_EQ(plan(problem).error().code, ErrorCode::kNoPlan);
}

TEST_P(PlanSearch, SnapshotsAndMessagesDoNotCountAgainstTheMemoryOfGpus) {
  PlanningCase problem = with_snapshots();
  for (DeviceSpec& device : problem.fleet.devices) device.kind = DeviceKind::kCuda;
  const Result<Plan> found = plan(problem);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->world_size(), 1);
  EXPECT_LT(found->prediction.ranks[0].memory, Bytes(30 << 20));
  EXPECT_EQ(found->prediction.ranks[0].host_memory,
            Bytes(3 * 4 * parameter_count(problem.job.model)));
}

TEST_P(PlanSearch, LikeGpusNeedNoHostMemoryToSum) {
  PlanningCase problem = with_snapshots();
  problem.job.devices.count = CountRange{2, 2};
  for (DeviceSpec& device : problem.fleet.devices) {
    device.kind = DeviceKind::kCuda;
    device.uuid = "GPU-" + device.id;
  }
  const Bytes snapshots(3 * 4 * parameter_count(problem.job.model));
  const auto host_memory = [&] {
    const Result<Plan> found = plan(problem);
    EXPECT_EQ(found->world_size(), 2);
    return found->prediction.ranks[0].host_memory + found->prediction.ranks[1].host_memory;
  };
  EXPECT_EQ(host_memory(), snapshots);
  problem.fleet.devices[1].type += "-other";
  EXPECT_GT(host_memory(), snapshots);
}

TEST_P(PlanSearch, AGpuDoesNotComputeInFloat64) {
  PlanningCase problem(8);
  problem.add({});
  problem.job.train.precision = Precision::kFp64;
  EXPECT_TRUE(plan(problem));
  problem.fleet.devices[0].kind = DeviceKind::kCuda;
  EXPECT_EQ(plan(problem).error().code, ErrorCode::kInvalidSpec);
}

TEST_P(PlanSearch, NothingFitsNamesTheNearestDevice) {
  PlanningCase problem(8);
  problem.add({.type = "tiny"}).add({.type = "small"});
  problem.profile.devices[0].memory_limit = Bytes(5 << 20);
  problem.profile.devices[1].memory_limit = Bytes(10 << 20);
  const Result<Plan> found = plan(problem);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kNoPlan);
  EXPECT_THAT(found.error().message,
              ::testing::HasSubstr("localhost/1 (small), the nearest, needs "));
  EXPECT_THAT(
      found.error().message,
      ::testing::HasSubstr("21 MiB of 9.5 MiB (10 MiB less 5 % headroom) at micro-batch 1"));
}

TEST_P(PlanSearch, KeepsToTheCountTheJobAllows) {
  PlanningCase problem(12);
  for (int i = 0; i < 4; ++i) problem.add({.per_sample = 0.010 + 0.001 * i});
  problem.job.devices.count = CountRange{2, 2};
  const Result<Plan> found = plan(problem);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->world_size(), 2);
}

TEST_P(PlanSearch, TheShortGrainGoesWhereItHelps) {
  PlanningCase problem(10);  // grains of 4: 4, 4, 2
  problem.job.train.grain = 4;
  problem.add({.fixed = 0, .per_sample = 0.020}).add({.fixed = 0, .per_sample = 0.010});
  const Result<Plan> found = plan(problem);
  ASSERT_TRUE(found) << found.error().message;
  // Either 4 : 6 at 80 ms or, with the short grain on the slow one, 2 : 8 at 80 ms.
  EXPECT_DOUBLE_EQ(found->prediction.step_seconds, 0.080);
}

TEST_P(PlanSearch, SameRequestSameBytes) {
  std::mt19937 random(11);
  const PlanningCase problem = random_case(random, 4);
  EXPECT_EQ(to_json(*plan(problem)).dump(), to_json(*plan(problem)).dump());
}

// --- the real search against the oracle ---

std::string describe(const PlanningCase& problem) { return to_json(problem.profile).dump(); }

TEST(PlanSearchAgainstExhaustive, EqualStepOnRandomCases) {
  std::mt19937 random(20240607);
  int compared = 0;
  for (int i = 0; i < 250; ++i) {
    const PlanningCase problem = random_case(random, 5);
    const Result<Plan> real = plan_search(problem.request());
    const Result<Plan> oracle = plan_exhaustive(problem.request());
    ASSERT_EQ(real.has_value(), oracle.has_value()) << "case " << i;
    if (!real) continue;
    ++compared;
    // Bit for bit: both price with the same formulas.
    ASSERT_EQ(real->prediction.step_seconds, oracle->prediction.step_seconds)
        << "case " << i << ": " << describe(problem);
    ASSERT_EQ(real->search.step_seconds, real->prediction.step_seconds);
    ASSERT_EQ(real->search.lower_bound_step_seconds, real->search.step_seconds) << "case " << i;
    ASSERT_EQ(real->search.gap(), 0);
  }
  EXPECT_GE(compared, 200);
}

/// What is left of sums then depends on each device's last micro-batch.
TEST(PlanSearchAgainstExhaustive, EqualStepWhereSumsGoOnBesideComputing) {
  std::mt19937 random(20261130);
  int compared = 0, hidden = 0, other_micro_batches = 0;
  for (int i = 0; i < 400; ++i) {
    PlanningCase problem = random_case(random, 5);
    const Result<Plan> afterwards = plan_search(problem.request());
    for (ReductionPoint& point : problem.at_own_speed().profile.reductions)
      if (point.hosts.size() > 1) point.busy_share = 0.1 * static_cast<double>(random() % 5);
    const Result<Plan> real = plan_search(problem.request());
    const Result<Plan> oracle = plan_exhaustive(problem.request());
    ASSERT_EQ(real.has_value(), oracle.has_value()) << "case " << i;
    if (!real) continue;
    ++compared;
    const double step = real->prediction.step_seconds;
    EXPECT_LE(step, afterwards->prediction.step_seconds * (1 + 1e-12)) << "case " << i;
    // Two sums of the same numbers in another order.
    EXPECT_NEAR(step / oracle->prediction.step_seconds, 1, 1e-12)
        << "case " << i << ": " << describe(problem);
    EXPECT_NEAR(real->search.step_seconds / step, 1, 1e-12);
    EXPECT_LE(real->search.gap(), 1e-12) << "case " << i << ": " << describe(problem);
    hidden += real->prediction.hidden_seconds > 0;
    for (size_t rank = 0; rank < real->replicas.size(); ++rank)
      other_micro_batches +=
          afterwards->replicas.size() == real->replicas.size() &&
          afterwards->replicas[rank].grains == real->replicas[rank].grains &&
          afterwards->replicas[rank].micro_batch != real->replicas[rank].micro_batch;
  }
  EXPECT_GE(compared, 200);
  EXPECT_GE(hidden, 50);
  EXPECT_GE(other_micro_batches, 1) << "longer last passes hide more";
}

/// As if there were too many devices to look at every set of them.
TEST(GrainSearchByPools, FindsWhatLookingAtEverySetDoesWhereSumsGoOnBesideComputing) {
  std::mt19937 random(7);
  int compared = 0, proved = 0;
  for (int i = 0; i < 300; ++i) {
    PlanningCase problem = random_case(random, 6);
    const PlanRequest request = problem.at_own_speed().request();
    const Result<Candidates> candidates = find_candidates(request);
    if (!candidates) continue;
    const ReductionTable reduction(ReductionModel(request.profile, gradient_bytes(request.job)),
                                   candidates->devices);
    const int grain = request.job.train.grain.value_or(1);
    const auto run = [&](size_t few) {
      return GrainSearch(request, *candidates, reduction, grain, few).run();
    };
    const DealResult sets = run(GrainSearch::kFewDevices), pools = run(0);
    if (sets.deal.grains.empty()) continue;
    ++compared;
    const double best = sets.deal.step_seconds;
    EXPECT_LE(pools.lower_bound, best * (1 + 1e-12)) << "case " << i;
    EXPECT_LE(pools.deal.step_seconds, best * (1 + 1e-12)) << "case " << i << describe(problem);
    proved += pools.lower_bound >= best * (1 - 1e-12);
  }
  EXPECT_GE(compared, 200);
  EXPECT_GE(proved, 0.95 * compared);
}

/// Twelve like devices on three hosts: four of one host would be the quickest if its sums were
/// beside.
TEST(PlanSearchBeside, LooksFromOneHostAtOthers) {
  PlanningCase problem(64);
  for (const char* host : {"a", "b", "c"})
    for (int i = 0; i < 4; ++i) problem.add({.host = host, .fixed = 0, .per_sample = 0.010});
  const auto bytes = static_cast<double>(gradient_bytes(problem.job).value());
  for (const char* a : {"a", "b", "c"})
    for (const char* b : {"a", "b", "c"})
      if (*a <= *b) problem.add_link(a, b, 0, 1.5 * bytes / 0.05);
  problem.job.devices.count = CountRange{1, 4};
  const Result<Plan> plan = plan_search(problem.at_own_speed().request());
  EXPECT_LT(plan->prediction.step_seconds, 0.19);
  EXPECT_GT(plan->prediction.hidden_seconds, 0);
  EXPECT_LE(plan->search.gap(), 1e-12);
}

/// Of more devices than every set is looked at of; the fewer are searched exactly.
TEST(PlanSearchAgainstFewer, NoneIsQuickerThanTheBoundWhereSumsGoOnBesideComputing) {
  std::mt19937 random(20261130);
  const auto draw = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  int hidden = 0;
  for (int i = 0; i < 12; ++i) {
    PlanningCase problem(64);
    for (const char* host : {"a", "b", "c", "d", "e"})
      for (int device = 0; device < 2; ++device)
        problem.add({.host = host, .fixed = draw(0, 0.01), .per_sample = draw(0.002, 0.01)});
    for (const auto& a : problem.fleet.hosts())
      for (const auto& b : problem.fleet.hosts())
        if (a <= b)
          problem.add_link(a, b, draw(0, 0.001), a == b ? draw(1e6, 1e7) : draw(5e4, 1e6));
    const Result<Plan> all = plan_search(problem.at_own_speed().request());
    ASSERT_TRUE(all);
    hidden += all->prediction.hidden_seconds > 0;
    EXPECT_LE(all->search.gap(), 0.02) << "case " << i;
    for (unsigned set = 1; set + 1 < 1U << 5; ++set) {
      PlanningCase fewer = problem;
      std::erase_if(fewer.fleet.devices, [&](const DeviceSpec& device) {
        return (set >> (device.host[0] - 'a') & 1U) == 0;
      });
      const Result<Plan> plan = plan_search(fewer.request());
      EXPECT_GE(plan->prediction.step_seconds * (1 + 1e-12), all->search.lower_bound_step_seconds);
      EXPECT_GE(plan->prediction.step_seconds * 1.01, all->prediction.step_seconds)
          << "case " << i << " set " << set;
    }
  }
  EXPECT_GE(hidden, 6);
}

}  // namespace
}  // namespace motley
