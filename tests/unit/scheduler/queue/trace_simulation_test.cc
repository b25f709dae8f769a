#include "scheduler/simulate/trace_simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/file_system.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

TraceJob job(const std::string& name, double arrival, double work, int devices,
             std::map<std::string, std::map<int, double>> speeds) {
  TraceJob job;
  job.name = job.owner = name;
  job.arrival_seconds = arrival;
  job.work = work;
  job.least = job.most = job.most_of_each = devices;
  job.mix = false;
  job.speeds = std::move(speeds);
  return job;
}

TraceOutcome outcome_of(const std::vector<TraceJob>& trace, const std::vector<Pool>& pools,
                        std::string_view policy) {
  const ManualClock clock;
  auto outcome = simulate_trace(trace, pools, **make_policy(policy), {}, clock);
  EXPECT_TRUE(outcome) << outcome.error().message;
  return std::move(*outcome);
}

TEST(TraceSimulation, FifoByHand) {
  const std::vector<TraceJob> trace = {job("a", 0, 100, 2, {{"card", {{2, 10}}}}),
                                       job("b", 1, 60, 1, {{"card", {{1, 2}}}}),
                                       job("c", 2, 20, 1, {{"card", {{1, 2}}}})};
  const TraceOutcome outcome = outcome_of(trace, {{"card", 2}}, "fifo");
  EXPECT_DOUBLE_EQ(outcome.jobs[0].finished, 10);
  EXPECT_DOUBLE_EQ(outcome.jobs[1].finished, 40);
  EXPECT_DOUBLE_EQ(outcome.jobs[2].finished, 20);
  EXPECT_DOUBLE_EQ(outcome.makespan, 40);
  EXPECT_DOUBLE_EQ(outcome.busy_device_seconds, 20 + 30 + 10);
  EXPECT_DOUBLE_EQ(outcome.utilisation(), 60.0 / 80);
  EXPECT_NEAR(outcome.mean_completion(), (10 + 39 + 18) / 3.0, 1e-9);
  EXPECT_DOUBLE_EQ(outcome.completion_quantile(0.99), 39);
}

TEST(TraceSimulation, AStopCostsItsTimeAndNoWork) {
  std::vector<TraceJob> trace = {job("long", 0, 1000, 1, {{"card", {{1, 1}}}}),
                                 job("urgent", 100, 50, 1, {{"card", {{1, 1}}}})};
  trace[0].switch_seconds = 7;
  trace[1].priority = 90;
  const TraceOutcome outcome = outcome_of(trace, {{"card", 1}}, "backfill");
  EXPECT_DOUBLE_EQ(outcome.jobs[1].finished, 150);
  EXPECT_DOUBLE_EQ(outcome.jobs[0].finished, 1000 + 50 + 7);
  EXPECT_EQ(outcome.jobs[0].stops, 1);
}

TEST(TraceSimulation, WhatFitsNothingIsRefusedByName) {
  const std::vector<TraceJob> trace = {job("big", 0, 10, 3, {{"card", {{3, 1}}}})};
  const ManualClock clock;
  const auto outcome = simulate_trace(trace, {{"card", 2}}, **make_policy("fifo"), {}, clock);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::kNoPlan);
  EXPECT_THAT(outcome.error().message, HasSubstr("big"));
}

/// Every policy does all the work of random traces, the same way twice, none in less time than its
/// fastest devices need; and what is busy is what was done.
TEST(TraceSimulation, DoesAllTheWork) {
  std::mt19937 random(5);
  for (int round = 0; round < 40; ++round) {
    const std::vector<Pool> pools = {{"fast", 3}, {"slow", 5}};
    std::vector<TraceJob> trace;
    for (int i = 0; i < 25; ++i) {
      const int devices = static_cast<int>(1 + random() % 3);
      const double rate = 1 + static_cast<double>(random() % 9);
      trace.push_back(job(std::to_string(i), i * static_cast<double>(random() % 50), 0, devices,
                          {{"fast", {{devices, 4 * rate}}}, {"slow", {{devices, rate}}}}));
      trace.back().work = rate * static_cast<double>(1 + random() % 3000);
      trace.back().mix = random() % 2 == 0;
      trace.back().preemptible = random() % 4 != 0;
      trace.back().switch_seconds = static_cast<double>(random() % 20);
    }
    std::stable_sort(trace.begin(), trace.end(), [](const TraceJob& a, const TraceJob& b) {
      return a.arrival_seconds < b.arrival_seconds;
    });
    for (const std::string_view policy : policy_names()) {
      const TraceOutcome once = outcome_of(trace, pools, policy);
      const TraceOutcome again = outcome_of(trace, pools, policy);
      for (size_t i = 0; i < trace.size(); ++i) {
        ASSERT_GE(once.jobs[i].completion(), once.jobs[i].alone * (1 - 1e-9)) << policy;
        ASSERT_EQ(once.jobs[i].finished, again.jobs[i].finished) << policy;
      }
      ASSERT_LE(once.busy_device_seconds, once.device_seconds * (1 + 1e-9));
    }
  }
}

class TraceFile : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = directory_.path() + "/" + name;
    EXPECT_TRUE(write_text_durably(real_file_system(), path, text));
    return path;
  }
  testing::TemporaryDirectory directory_;
};

TEST_F(TraceFile, IsReadInEachOfItsFormats) {
  const std::string speeds =
      write("speeds.json", R"({"v100": {"GPT": {"1": 4, "2": 7.5}}, "k80": {"GPT": {"2": 1.5}}})");
  const std::string tabs = write("jobs.tsv",
                                 "GPT\tpython3 x.py\t.\t--steps\t1\t900\t2\t1\t-1\t60\n"
                                 "GPT\tpython3 x.py\t.\t--steps\t1\t30\t2\t2\t-1\t0\n");
  const auto gavel = read_trace(tabs, speeds);
  ASSERT_TRUE(gavel) << gavel.error().to_string();
  ASSERT_EQ(gavel->size(), 2u);
  EXPECT_EQ((*gavel)[0].name, "job-2");  // the one that came first
  EXPECT_EQ((*gavel)[1].work, 900);
  EXPECT_EQ((*gavel)[1].speeds.at("v100").at(2), 7.5);
  const auto lines = read_trace(write("jobs.jsonl", trace_text(*gavel)), "");
  ASSERT_TRUE(lines) << lines.error().to_string();
  EXPECT_EQ(trace_text(*lines), trace_text(*gavel));
  const auto table = read_trace(
      write("jobs.csv",
            "name,arrival_seconds,work,devices,weight,mix,speed:v100:1,speed:v100:2,speed:k80:2\n"
            "\"job-2\",0,30,2,2,false,4,7.5,1.5\njob-1,60,900,2,1,false,4,7.5,1.5\n"),
      "");
  ASSERT_TRUE(table) << table.error().to_string();
  EXPECT_EQ(trace_text(*table), trace_text(*gavel));
}

TEST_F(TraceFile, FaultsNameTheirLine) {
  const auto fault = [&](const std::string& name, const std::string& text) {
    const auto trace = read_trace(write(name, text), "");
    return trace ? "none" : trace.error().to_string();
  };
  const std::string good =
      R"({"name": "a", "arrival_seconds": 0, "work": 1, "devices": 1, "speeds": {"x": {"1": 1}}})";
  EXPECT_THAT(fault("a.jsonl", good + "\n{\"name\": 3}\n"), HasSubstr("a.jsonl:2"));
  EXPECT_THAT(fault("b.jsonl", good + "\n\nnonsense\n"), HasSubstr("b.jsonl:3"));
  EXPECT_THAT(
      fault("c.jsonl",
            R"({"name": "a", "arrival_seconds": 0, "work": 1, "devices": [3, 2], "speeds": {}})"),
      HasSubstr("[least, most]"));
  EXPECT_THAT(fault("d.csv", "name,arrival_seconds\na,1,2\n"), HasSubstr("d.csv:2"));
  EXPECT_THAT(fault("e.csv", "name\n\"a\n"), HasSubstr("quotation"));
  EXPECT_THAT(fault("f.jsonl", ""), HasSubstr("no job"));
  EXPECT_THAT(fault("g.txt", "x"), HasSubstr(".jsonl"));
  EXPECT_THAT(fault("h.tsv", "x"), HasSubstr("--speeds"));
}

}  // namespace
}  // namespace motley
