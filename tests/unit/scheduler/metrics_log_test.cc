#include "scheduler/run/metrics_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <sstream>

#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

using ::testing::ElementsAre;

StepReport step(int64_t number, double loss) {
  StepReport report;
  report.step = number;
  report.loss = loss;
  report.loss_bits = std::bit_cast<uint64_t>(loss);
  report.step_seconds = 0.5;
  return report;
}

class MetricsLogTest : public ::testing::Test {
 protected:
  std::string path() const { return directory_.path() + "/metrics.jsonl"; }
  std::string text() const {
    std::ostringstream content;
    content << std::ifstream(path()).rdbuf();
    return content.str();
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> numbers;
    for (const MetricsRow& row : read_metrics(path())) numbers.push_back(row.step);
    return numbers;
  }
  void write(Epoch epoch, std::initializer_list<int64_t> numbers) const {
    MetricsLog log(path(), epoch);
    for (const int64_t number : numbers)
      ASSERT_TRUE(log.add(step(number, 1.0 / static_cast<double>(number)), 1000.5, {}));
  }

 private:
  testing::TemporaryDirectory directory_;
};

TEST_F(MetricsLogTest, WritesOneObjectAStep) {
  write(Epoch(3), {1, 2});
  const auto rows = read_metrics(path());
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].step, 2);
  EXPECT_EQ(rows[1].loss, 0.5);
  EXPECT_EQ(rows[1].loss_bits, "3fe0000000000000");
  EXPECT_EQ(rows[1].epoch, Epoch(3));
  EXPECT_FALSE(rows[1].eval_loss);
}

TEST_F(MetricsLogTest, AnAttemptCutsWhatItRepeats) {
  write(Epoch(1), {1, 2, 3, 4, 5});
  write(Epoch(2), {3, 4});
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4));
}

TEST_F(MetricsLogTest, AnAttemptThatNeverStepsCutsNothing) {
  write(Epoch(1), {1, 2});
  write(Epoch(2), {});
  EXPECT_THAT(steps(), ElementsAre(1, 2));
}

TEST_F(MetricsLogTest, ALineCutShortByAKillIsNotRead) {
  write(Epoch(1), {1, 2});
  std::ofstream(path(), std::ios::app) << R"({"step":3,"loss":0.)";
  EXPECT_THAT(steps(), ElementsAre(1, 2));
  write(Epoch(2), {3});
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3));
}

TEST_F(MetricsLogTest, AnEvaluationJoinsTheLineOfItsStep) {
  MetricsLog log(path(), Epoch(1));
  ASSERT_TRUE(log.add(step(1, 2.0), 0, {}));
  ASSERT_TRUE(log.add_evaluation(1, 2.5));
  ASSERT_TRUE(log.add(step(2, 1.0), 0, {}));
  const auto rows = read_metrics(path());
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].eval_loss, 2.5);
  EXPECT_EQ(rows[0].loss, 2.0);
  EXPECT_FALSE(rows[1].eval_loss);
}

TEST_F(MetricsLogTest, AnEvaluationOfAnotherStepIsNotRecorded) {
  MetricsLog log(path(), Epoch(1));
  ASSERT_TRUE(log.add_evaluation(1, 2.5));
  ASSERT_TRUE(log.add(step(2, 1.0), 0, {}));
  ASSERT_TRUE(log.add_evaluation(1, 2.5));
  EXPECT_FALSE(read_metrics(path()).front().eval_loss);
}

TEST_F(MetricsLogTest, ALossThatIsNotFiniteIsNullButItsBitsAreKept) {
  MetricsLog log(path(), Epoch(1));
  ASSERT_TRUE(log.add(step(1, std::nan("")), 0, {}));
  EXPECT_THAT(text(), ::testing::HasSubstr("\"loss\":null"));
  EXPECT_EQ(read_metrics(path()).front().loss_bits, "7ff8000000000000");
}

TEST_F(MetricsLogTest, GivesTheLinesUpToAStep) {
  write(Epoch(1), {1, 2, 3});
  const std::string all = text();
  const std::string two = metrics_until(path(), 2);
  EXPECT_EQ(all.substr(0, two.size()), two);
  EXPECT_EQ(std::count(two.begin(), two.end(), '\n'), 2);
}

}  // namespace
}  // namespace motley
