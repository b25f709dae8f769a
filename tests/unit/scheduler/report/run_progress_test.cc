#include "scheduler/report/run_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace motley {
namespace {

RunProgress at_step_120() {
  RunProgress progress{.epoch = Epoch(2), .phase = "training", .begun = 1795527297.5};
  progress.step = 120;
  progress.steps = 400;
  progress.loss = 3.214;
  progress.samples_per_second = 82.1;
  progress.step_seconds = 0.78;
  progress.eta_seconds = 65;
  progress.ranks.resize(2);
  for (int i = 0; i < 2; ++i) {
    progress.ranks[i].rank = i;
    progress.ranks[i].host = "a" + std::to_string(i + 1);
    progress.ranks[i].device = progress.ranks[i].host + "/0";
    progress.ranks[i].type = i == 0 ? "fast" : "slow-card";
    progress.ranks[i].compute_seconds = i == 0 ? 0.5 : 0.7;
    progress.ranks[i].wait_seconds = i == 0 ? 0.25 : 0.05;
    progress.ranks[i].update_seconds = 0.03;
  }
  progress.ranks[0].memory = Bytes(1'200'000'000);
  progress.ranks[0].memory_limit = Bytes(2'000'000'000);
  return progress;
}

TEST(RunProgress, ComesBackFromItsDocument) {
  const nlohmann::json document = to_json(at_step_120());
  const auto back = run_progress_from_json(document);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(to_json(*back), document);
  EXPECT_EQ(back->ranks[0].memory_limit, Bytes(2'000'000'000));
  EXPECT_EQ(back->ranks[1].memory, std::nullopt);
}

TEST(RunProgress, OfAProgramIsItsPhase) {
  const RunProgress program{.epoch = Epoch(1), .phase = "running", .begun = 1};
  const auto back = run_progress_from_json(to_json(program));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->step, std::nullopt);
  EXPECT_EQ(progress_text(*back), "running");
}

TEST(RunProgress, IsALineForPeople) {
  EXPECT_EQ(progress_text(at_step_120()),
            "step 120/400  30 %  loss 3.2140  82.1 samples/s  1m05s left");
  RunProgress diverged = at_step_120();
  diverged.loss.reset();
  EXPECT_THAT(progress_text(diverged), ::testing::HasSubstr("loss nan"));
}

TEST(RunProgress, NamesTheStragglerOnceAllRanksHaveTold) {
  RunProgress progress = at_step_120();
  ASSERT_TRUE(progress.straggler());
  EXPECT_EQ(progress.straggler()->rank, 1u);
  progress.ranks[0].wait_seconds.reset();
  EXPECT_FALSE(progress.straggler());
}

TEST(RunProgress, RefusesWhatIsNone) {
  nlohmann::json document = to_json(at_step_120());
  document["version"] = 2;
  EXPECT_FALSE(run_progress_from_json(document));
  EXPECT_FALSE(run_progress_from_json(nlohmann::json::array()));
}

}  // namespace
}  // namespace motley
