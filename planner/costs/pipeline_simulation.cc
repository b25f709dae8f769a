#include "planner/costs/pipeline_simulation.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace motley {
namespace {

class Simulation {
 public:
  explicit Simulation(const std::vector<StageTimes>& stages)
      : stages_(stages), states_(stages.size()) {
    const auto micro_batches = static_cast<int>(stages.front().forward.size());
    const auto count = static_cast<int>(stages.size());
    for (int stage = 0; stage < count; ++stage) {
      State& state = states_[static_cast<size_t>(stage)];
      state.actions = one_forward_one_backward(count, stage, micro_batches);
      state.free = stages[static_cast<size_t>(stage)].ready;
    }
    timeline_.stages.resize(stages.size());
  }

  /// When an action begins does not depend on the order in which stages are looked at.
  PipelineTimeline run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < stages_.size(); ++stage)
        while (advance(stage)) moved = true;
    }
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      StageTimeline& line = timeline_.stages[stage];
      MOTLEY_CHECK_EQ(line.actions.size(), states_[stage].actions.size());
      line.idle = timeline_.end - stages_[stage].ready - line.busy;
    }
    return std::move(timeline_);
  }

 private:
  struct State {
    std::vector<PipelineAction> actions;
    Nanos free{0};
    std::vector<Nanos> sent[2];  ///< arrives when: forward, backward; micro-batches go in order
  };

  /// One action of a stage; false when what it needs is not known yet, or it is through.
  bool advance(size_t stage) {
    State& state = states_[stage];
    StageTimeline& line = timeline_.stages[stage];
    if (line.actions.size() == state.actions.size()) return false;
    const PipelineAction action = state.actions[line.actions.size()];
    const auto number = static_cast<size_t>(action.micro_batch);
    const size_t sender = action.backward ? stage + 1 : stage - 1;  // wraps before the first
    Nanos begin = state.free;
    if (sender < stages_.size()) {
      const std::vector<Nanos>& sent = states_[sender].sent[action.backward];
      if (sent.size() <= number) return false;
      begin = std::max(begin, sent[number]);
    }
    const StageTimes& times = stages_[stage];
    const Nanos length = (action.backward ? times.backward : times.forward)[number];
    state.free = begin + length;
    state.sent[action.backward].push_back(
        state.free + (action.backward ? times.backward_travels : times.forward_travels));
    line.actions.push_back({action, begin, state.free});
    line.busy += length;
    timeline_.end = std::max(timeline_.end, state.free);
    return true;
  }

  const std::vector<StageTimes>& stages_;
  std::vector<State> states_;
  PipelineTimeline timeline_;
};

}  // namespace

PipelineTimeline simulate_pipeline(const std::vector<StageTimes>& stages) {
  MOTLEY_CHECK(!stages.empty(), "a replica has a stage");
  for (const StageTimes& times : stages) {
    MOTLEY_CHECK_EQ(times.forward.size(), stages.front().forward.size());
    MOTLEY_CHECK_EQ(times.backward.size(), stages.front().forward.size());
  }
  return Simulation(stages).run();
}

Nanos simulate_step(const std::vector<std::vector<StageTimes>>& replicas) {
  Nanos longest{0};
  for (const auto& stages : replicas) longest = std::max(longest, simulate_pipeline(stages).end);
  return longest;
}

}  // namespace motley
