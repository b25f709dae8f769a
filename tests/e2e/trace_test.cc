// A trace accounts for a rank's time: nothing twice, nothing but what was reported.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/e2e/small_run.h"

namespace motley::testing {
namespace {

using nlohmann::json;

struct Span {
  std::string name;
  std::string category;
  int64_t step = 0;
  double begin = 0, end = 0;  ///< microseconds
};

/// Checks what Chrome asks of every event.
std::vector<Span> spans_of(const json& trace, int rank) {
  std::vector<Span> spans;
  EXPECT_TRUE(trace.is_array());
  for (const json& event : trace) {
    EXPECT_EQ(event.at("pid"), rank);
    EXPECT_EQ(event.at("tid"), 0);
    if (event.at("ph") == "M") continue;
    EXPECT_EQ(event.at("ph"), "X");
    const double begin = event.at("ts"), duration = event.at("dur");
    EXPECT_GE(duration, 0);
    spans.push_back(
        {event.at("name"), event.at("cat"), event.at("args").at("step"), begin, begin + duration});
  }
  return spans;
}

constexpr double kRounding = 0.002;  // microseconds

/// Steps follow each other; all else follows each other within them.
void expect_nested(const std::vector<Span>& spans) {
  std::map<int64_t, Span> steps;
  double last_step = 0, last = 0;
  for (const Span& span : spans) {
    double& before = span.category == "step" ? last_step : last;
    EXPECT_GE(span.begin, before - kRounding) << span.name << " of step " << span.step;
    before = span.end;
    if (span.category == "step") steps[span.step] = span;
  }
  for (const Span& span : spans) {
    const auto step = steps.find(span.step);
    if (step == steps.end()) continue;  // what follows the last one
    EXPECT_GE(span.begin, step->second.begin - kRounding) << span.name;
    EXPECT_LE(span.end, step->second.end + kRounding) << span.name;
  }
}

/// Seconds of a step in passes and in updates, for others and with them.
struct Sums {
  double compute = 0;
  double update = 0;
  double wait = 0;
  double communication = 0;
};

std::map<int64_t, Sums> sums_of(const std::vector<Span>& spans) {
  std::map<int64_t, Sums> sums;
  for (const Span& span : spans) {
    const double seconds = (span.end - span.begin) * 1e-6;
    if (span.name == "update")
      sums[span.step].update += seconds;
    else if (span.category == "compute")
      sums[span.step].compute += seconds;
    else if (span.category == "wait")
      sums[span.step].wait += seconds;
    else if (span.category == "communication")
      sums[span.step].communication += seconds;
  }
  return sums;
}

/// Without the number of the step or micro-batch.
std::string name_of(const Span& span) {
  return span.name.substr(0, span.name.find_last_not_of(" 0123456789") + 1);
}

std::set<std::string> names_of(const std::vector<Span>& spans) {
  std::set<std::string> names;
  for (const Span& span : spans) names.insert(name_of(span));
  return names;
}

/// Seconds of everything called so.
double seconds_in(const std::vector<Span>& spans, const std::string& name) {
  double seconds = 0;
  for (const Span& span : spans)
    if (name_of(span) == name) seconds += (span.end - span.begin) * 1e-6;
  return seconds;
}

class Traces : public ::testing::Test {
 protected:
  void run(const SmallRun& run, PaceClock clock) {
    attempt_ = small_attempt(run, scratch_.path() + "/run");
    attempt_.trace = true;
    attempt_.fleet.clock = clock;
    const auto outcome = run_small(attempt_, recorder_);
    ASSERT_TRUE(outcome) << outcome.error().to_string();
  }

  void expect_accounts(double tolerance) {
    for (int rank = 0; rank < attempt_.plan.world_size(); ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      const auto spans = spans_of(trace_of(attempt_, rank), rank);
      expect_nested(spans);
      auto sums = sums_of(spans);
      for (const auto& [step, report] : recorder_.account(rank).steps) {
        EXPECT_NEAR(sums[step].compute, report.compute_seconds, tolerance) << step;
        EXPECT_NEAR(sums[step].update, report.update_seconds, tolerance) << step;
        EXPECT_NEAR(sums[step].wait, report.wait_seconds, tolerance) << step;
        EXPECT_EQ(sums[step].communication, 0) << "what travels takes no logical time";
      }
    }
  }

  /// What a rank reports as waiting is in the trace, but for the moments between two events.
  void expect_all_waiting_seen(int rank) {
    double reported = 0, seen = 0;
    auto sums = sums_of(spans_of(trace_of(attempt_, rank), rank));
    for (const auto& [step, report] : recorder_.account(rank).steps) {
      EXPECT_LE(sums[step].wait, report.wait_seconds + 1e-6) << "rank " << rank << ", " << step;
      reported += report.wait_seconds;
      seen += sums[step].wait + sums[step].communication;
    }
    EXPECT_NEAR(seen / reported, 1, 0.25) << "rank " << rank;
  }

  TemporaryDirectory scratch_;
  Recorder recorder_;
  Attempt attempt_;
};

/// Every form in one plan: a stage shared by two ranks, a pipeline, a whole model.
SmallRun every_form() {
  return {.speeds = {1, 0.5, 0.7, 2},
          .replicas = {{.stages = {{2, {0.5, 0.5}}, {2}}, .grains = 4},
                       {.stages = {{4}}, .grains = 3, .micro_batch_grains = 2}},
          .steps = 4};
}

/// One sample, evaluated by a program made for four: the sums in it count for one, too.
TEST_F(Traces, OfAPartialEvaluationOnASharedStageNeverGoBack) {
  run({.replicas = {{.stages = {{4, {0.5, 0.5}}}, .grains = 4, .micro_batch_grains = 2}},
       .steps = 4,
       .eval = {.every = 2, .samples = 1}},
      PaceClock::kVirtual);
  for (int rank = 0; rank < 2; ++rank) {
    const auto spans = spans_of(trace_of(attempt_, rank), rank);
    expect_nested(spans);
    EXPECT_GT(seconds_in(spans, "evaluate"), 0) << "rank " << rank;
  }
}

TEST_F(Traces, AccountForEveryFormUnderTheVirtualClock) {
  run(every_form(), PaceClock::kVirtual);
  expect_accounts(1e-7);
  EXPECT_EQ(names_of(spans_of(trace_of(attempt_, 0), 0)),
            (std::set<std::string>{"step", "forward", "backward", "evaluate", "update", "receive",
                                   "send", "group sum", "agreement", "reduce", "wait for receive",
                                   "wait for send", "wait for group sum", "wait for agreement",
                                   "wait for reduce"}));
}

TEST_F(Traces, AccountForTimeThatReallyPassed) {
  SmallRun run_of_few = every_form();
  run_of_few.shard_optimizer = true;
  run(run_of_few, PaceClock::kSleep);
  for (int rank = 0; rank < attempt_.plan.world_size(); ++rank) {
    expect_nested(spans_of(trace_of(attempt_, rank), rank));
    expect_all_waiting_seen(rank);
  }
}

/// A rank at a twentieth of the others' speed, in each place where ranks meet.
TEST_F(Traces, ASlowRankMakesTheOthersWaitNotCommunicate) {
  SmallRun of_replicas, of_stages, of_parts;
  of_replicas.steps = of_stages.steps = of_parts.steps = 4;
  of_replicas.grains = {1, 1, 1};
  of_replicas.speeds = {1, 0.05, 1};
  of_stages.replicas = {{.stages = {{2}, {2}}, .grains = 3}};
  of_stages.speeds = {0.05, 1};
  of_parts.replicas = {{.stages = {{4, {0.5, 0.5}}}}};
  of_parts.speeds = {1, 0.05};
  struct Case {
    SmallRun run;
    int slow, waits;
    std::string what;
  };
  for (const auto& [slow_run, slow, waits, what] :
       {Case{of_replicas, 1, 2, "agreement"}, Case{of_stages, 0, 1, "receive"},
        Case{of_parts, 1, 0, "group sum"}}) {
    SCOPED_TRACE(what);
    run(slow_run, PaceClock::kVirtual);
    const auto of_slow = spans_of(trace_of(attempt_, slow), slow);
    const auto of_waiting = spans_of(trace_of(attempt_, waits), waits);
    const double waited = seconds_in(of_waiting, "wait for " + what);
    // With slack for a busy machine: waiting that counted as communication would turn these around.
    EXPECT_GT(waited, seconds_in(of_waiting, "step") / 3);
    EXPECT_LT(seconds_in(of_waiting, what), waited / 2);
    EXPECT_LT(seconds_in(of_slow, "wait for " + what), waited / 2);
    std::filesystem::remove_all(attempt_.run_dir);
  }
}

TEST_F(Traces, AStoppedAttemptHasOneWithTheNamesOfItsRanks) {
  SmallRun endless = every_form();
  endless.steps = 1000;
  attempt_ = small_attempt(endless, scratch_.path() + "/run");
  attempt_.trace = true;
  const auto outcome =
      run_small(attempt_, recorder_, [](int, int64_t step, ControlWishes& wishes) -> Result<Unit> {
        if (step == 2) wishes.stop = true;
        return Unit{};
      });
  ASSERT_TRUE(outcome);
  ASSERT_TRUE(outcome->stopped);
  const json trace = trace_of(attempt_, 1);
  EXPECT_EQ(trace[0]["name"], "process_name");
  EXPECT_EQ(trace[0]["args"]["name"], "rank 1 on host/1 (paced-fp32)");
  EXPECT_EQ(trace[2]["name"], "thread_name");
  EXPECT_EQ(trace[2]["args"]["name"], "replica 0, stage 0, part 1");
  std::set<std::string> names;
  for (const json& event : trace) names.insert(event["name"].get<std::string>());
  EXPECT_TRUE(names.contains("step 2"));
}

TEST_F(Traces, OfHostsThatShareNoStorageAllReachTheFirst) {
  const std::string roots[] = {scratch_.path() + "/a", scratch_.path() + "/b"};
  for (const std::string& root : roots) std::filesystem::create_directories(root);
  RootedFileSystem first(roots[0]), second(roots[1]);
  attempt_ = small_attempt(every_form(), scratch_.path() + "/run");
  attempt_.trace = true;
  const auto outcome = run_small(attempt_, recorder_, nullptr, [&](int rank) -> FileSystem& {
    return rank < 2 ? first : second;
  });
  ASSERT_TRUE(outcome) << outcome.error().to_string();
  Attempt as_first_sees = attempt_;
  as_first_sees.run_dir = roots[0] + attempt_.run_dir;
  for (int rank = 0; rank < attempt_.plan.world_size(); ++rank)
    EXPECT_FALSE(spans_of(trace_of(as_first_sees, rank), rank).empty()) << "rank " << rank;
}

}  // namespace
}  // namespace motley::testing
