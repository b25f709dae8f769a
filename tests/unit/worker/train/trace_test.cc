// The ring of events and the document made of it.

#include "worker/train/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/holdings.h"
#include "core/model.h"

namespace motley {
namespace {

Plan plan_of_one() {
  const ModelSpec model{
      .type = "gpt", .layers = 1, .heads = 1, .width = 4, .context = 4, .vocab = 8};
  Plan plan;
  plan.ranks.push_back({.device = "a1/0", .host = "a1", .type = "slow \"card\""});
  plan.replicas.push_back({.stages = {whole_model(model)}, .micro_batch = 1, .grains = 1});
  return plan;
}

TEST(Trace, KeepsTheNewestEvents) {
  Trace trace(3);
  trace.begin(1, 100.0);
  for (int i = 0; i < 5; ++i) trace.add(TraceKind::kForward, i, 100.0 + i, 100.5 + i);
  const auto events = trace.events();
  ASSERT_EQ(events.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(events[i].micro_batch, static_cast<int>(i) + 2);
    EXPECT_EQ(events[i].begin, Nanos(static_cast<int64_t>(i + 2) * 1'000'000'000));
  }
  const auto json = nlohmann::json::parse(trace.to_json(plan_of_one(), Rank(0)));
  EXPECT_EQ(json[3]["args"]["labels"], "without the first 2 events");
}

TEST(Trace, WritesWhatChromeReads) {
  Trace trace;
  trace.begin(7, 2.0);
  trace.add(TraceKind::kBackward, 3, 2.000001, 2.000003500);
  trace.add(TraceKind::kReceive, 4, 2.0000035, 2.0000035, true);
  trace.add(TraceKind::kAgreement, 3, 2.0000035, 2.000004);
  trace.end_step(2.000004);
  trace.add(TraceKind::kUpdate, -1, 2.000004, 2.000004);
  const auto json = nlohmann::json::parse(trace.to_json(plan_of_one(), Rank(0)));
  ASSERT_EQ(json.size(), 8U);
  EXPECT_EQ(json[0]["args"]["name"], "rank 0 on a1/0 (slow \"card\")");
  EXPECT_EQ(json[3], nlohmann::json::parse(R"({"name": "backward 3", "cat": "compute", "ph": "X",
    "ts": 1.0, "dur": 2.5, "pid": 0, "tid": 0, "args": {"step": 7, "micro_batch": 3, "stage": 0}})"));
  EXPECT_EQ(json[4], nlohmann::json::parse(R"({"name": "wait for receive 4", "cat": "wait",
    "ph": "X", "ts": 3.5, "dur": 0.0, "pid": 0, "tid": 0,
    "args": {"step": 7, "micro_batch": 4, "stage": 0}})"));
  EXPECT_EQ(json[5], nlohmann::json::parse(R"({"name": "agreement", "cat": "communication",
    "ph": "X", "ts": 3.5, "dur": 0.5, "pid": 0, "tid": 0, "args": {"step": 7}})"));
  EXPECT_EQ(json[6]["name"], "step 7");
  EXPECT_EQ(json[6]["dur"], 4.0);
  EXPECT_EQ(json[7]["args"]["step"], 8);
}

}  // namespace
}  // namespace motley
