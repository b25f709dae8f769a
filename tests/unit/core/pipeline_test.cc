// 1F1B: what holds of the order of work for any number of stages and micro-batches.

#include "core/pipeline.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace motley {
namespace {

struct Shape {
  int stages = 1;
  int micro_batches = 1;
};

Shape any_shape() { return {*rc::gen::inRange(1, 13), *rc::gen::inRange(1, 41)}; }

RC_GTEST_PROP(OneForwardOneBackward, EveryMicroBatchGoesForwardOnceAndBackwardOnceInOrder, ()) {
  const Shape shape = any_shape();
  for (int stage = 0; stage < shape.stages; ++stage) {
    int forward = 0, backward = 0;
    for (const PipelineAction& action :
         one_forward_one_backward(shape.stages, stage, shape.micro_batches)) {
      RC_ASSERT(action.micro_batch == (action.backward ? backward : forward));
      ++(action.backward ? backward : forward);
      RC_ASSERT(backward <= forward);
    }
    RC_ASSERT(forward == shape.micro_batches);
    RC_ASSERT(backward == shape.micro_batches);
  }
}

RC_GTEST_PROP(OneForwardOneBackward, AsManyAreInFlightAsForetold, ()) {
  const Shape shape = any_shape();
  for (int stage = 0; stage < shape.stages; ++stage) {
    int in_flight = 0, most = 0;
    for (const PipelineAction& action :
         one_forward_one_backward(shape.stages, stage, shape.micro_batches)) {
      in_flight += action.backward ? -1 : 1;
      most = std::max(most, in_flight);
    }
    RC_ASSERT(most == most_in_flight(shape.stages, stage, shape.micro_batches));
  }
}

/// Stages that work through their lists, each as far as the others allow. A send ends only when its
/// receiver has it (a rendezvous), and what it sends lies in a slot, of which a stage has as many
/// as it keeps micro-batches: before a pass the sends it would write over must have ended. What is
/// awaited is received first. (tests/sim/pipeline_order_test.cc does this with the worker's code.)
class Stages {
 public:
  explicit Stages(const Shape& shape) : shape_(shape), done_(static_cast<size_t>(shape.stages)) {
    for (int stage = 0; stage < shape.stages; ++stage)
      lists_.push_back(one_forward_one_backward(shape.stages, stage, shape.micro_batches));
  }

  /// Receives what the next action of a stage needs, or does it; false when it can neither, or is
  /// through.
  bool advance(int stage) {
    size_t& next = done_[static_cast<size_t>(stage)];
    const auto& list = lists_[static_cast<size_t>(stage)];
    if (next == list.size()) return false;
    const PipelineAction action = list[next];
    const Message wanted = {stage + (action.backward ? 1 : -1), action.backward,
                            action.micro_batch};
    if (exists(wanted) && !received_.contains(wanted)) {
      if (!posted_.contains(wanted)) return false;
      received_.insert(wanted);
      return true;
    }
    if (!slot_is_free(stage, action)) return false;
    posted_.insert({stage, action.backward, action.micro_batch});
    ++next;
    return true;
  }

  bool through() const {
    for (size_t stage = 0; stage < lists_.size(); ++stage)
      if (done_[stage] != lists_[stage].size()) return false;
    return true;
  }

 private:
  /// Sent by a stage, with or against the layers, of a micro-batch.
  using Message = std::tuple<int, bool, int>;

  bool exists(const Message& message) const {
    const auto& [sender, backward, micro_batch] = message;
    const int receiver = sender + (backward ? -1 : 1);
    return std::min(sender, receiver) >= 0 && std::max(sender, receiver) < shape_.stages;
  }
  bool has_ended(const Message& message) const {
    return !exists(message) || received_.contains(message);
  }
  /// Of what the slot's last user sent nothing is open. A gradient arrives where the output was.
  bool slot_is_free(int stage, const PipelineAction& action) const {
    if (action.backward) return has_ended({stage, false, action.micro_batch});
    const int before =
        action.micro_batch - most_in_flight(shape_.stages, stage, shape_.micro_batches);
    return before < 0 || (has_ended({stage, false, before}) && has_ended({stage, true, before}));
  }

  Shape shape_;
  std::vector<std::vector<PipelineAction>> lists_;
  std::vector<size_t> done_;
  std::set<Message> posted_, received_;
};

/// Whoever is quicker: stages move in any order, each as far as any.
RC_GTEST_PROP(OneForwardOneBackward, NoStageWaitsForEver, ()) {
  const Shape shape = any_shape();
  Stages stages(shape);
  const auto hasty = *rc::gen::inRange(0, shape.stages);
  for (bool moved = true; moved;) {
    while (stages.advance(hasty)) {
    }
    moved = false;
    for (int i = 0; i < shape.stages; ++i) {
      const int stage = (hasty + 1 + i) % shape.stages;
      moved = stages.advance(stage) || moved;
    }
  }
  RC_ASSERT(stages.through());
}

}  // namespace
}  // namespace motley
