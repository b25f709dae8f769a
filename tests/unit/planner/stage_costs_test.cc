// What stages cost one by one, and what that says of rows of them.

#include "planner/pipelines/stage_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/pipelines/pipeline_cut.h"
#include "planner/pipelines/pipeline_space.h"
#include "planner/pipelines/tensor_sets.h"
#include "tests/support/layered_case.h"
#include "tests/support/planning_case.h"
#include "tests/support/random_cases.h"

namespace motley {
namespace {

using testing::PlanningCase;

int draw(std::mt19937& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}

/// Two devices of each of three types on a host, which may share stages.
PlanningCase three_types(std::mt19937& random) {
  PlanningCase problem(32);
  problem.job.model = {"gpt", 6, 4, 256, 128, 8000};
  for (int type = 0; type < 3; ++type)
    for (int i = 0; i < 2; ++i)
      testing::add_layered({.type = "card" + std::to_string(type),
                            .per_sample = 0.001 * draw(random, 2, 20),
                            .memory_mib = draw(random, 60, 400),
                            .sharing = true},
                           &problem);
  return problem;
}

TEST(StageCosts, OfTheBusiestStageAreAtLeastWhatDividedBlocksTake) {
  std::mt19937 random(20261130);
  int found = 0, shared = 0;
  double closest = 0;
  for (int i = 0; i < testing::random_cases(40); ++i) {
    const PlanningCase problem = three_types(random);
    const PlanRequest request = problem.request();
    const MemoryCounter counter = testing::layer_bytes_counter(problem);
    const PipelineSpace space(request, *group_devices(request, GroupBy::kHost));
    PipelineCosts costs =
        *PipelineCosts::make(request, space.groups, space.micro_batches, counter.layers);
    const TensorSets sets = tensor_sets(space, costs, kNever, 16);
    ASSERT_TRUE(costs.add_tensor_sets(sets.sets, space.micro_batches, counter.layers));
    const int size = space.micro_batches[random() % 4], samples = draw(random, 1, 32);
    StageCosts known(costs, size, samples);
    for (int row = 0; row < 50; ++row) {
      std::vector<int> groups;
      for (int stages = draw(random, 2, 5); stages > 0; --stages)
        groups.push_back(draw(random, 0, costs.groups() + std::ssize(sets.sets) - 1));
      const PipelineCut cut = best_cut(&known, groups, kNever, 100'000);
      if (cut.pipeline.stages.empty()) continue;
      ++found;
      int64_t busiest = 0;
      const auto stages = static_cast<int>(groups.size());
      for (int s = 0; s < stages; ++s) {
        const PipelineStage& stage = cut.pipeline.stages[static_cast<size_t>(s)];
        const StageCost cost = stage_cost(costs, stage, s, stages, size, samples);
        const auto layers = static_cast<size_t>(stage.last - stage.first);
        EXPECT_EQ(known.of(stage.group, s, stages)[layers].cost.work, cost.work);
        busiest = std::max(busiest, cost.work);
        if (costs.tensor_set(stage.group) != nullptr) ++shared;
      }
      const double least = known.least_of_busiest(groups);
      EXPECT_LE(least, 1e-9 * static_cast<double>(busiest) * (1 + 1e-6));
      closest = std::max(closest, least / (1e-9 * static_cast<double>(busiest)));
    }
  }
  EXPECT_GT(found, testing::random_cases(400));
  EXPECT_GT(shared, testing::random_cases(400));
  EXPECT_GT(closest, 0.9);  // it is of use
}

}  // namespace
}  // namespace motley
