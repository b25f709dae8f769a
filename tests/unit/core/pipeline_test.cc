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

/// Stages that work through their lists, each as far as what has reached it allows. Sends do not
/// wait.
class Stages {
 public:
  explicit Stages(const Shape& shape) : shape_(shape), done_(static_cast<size_t>(shape.stages)) {
    for (int stage = 0; stage < shape.stages; ++stage)
      lists_.push_back(one_forward_one_backward(shape.stages, stage, shape.micro_batches));
  }

  /// One action of a stage; false when it waits or is through.
  bool advance(int stage) {
    size_t& next = done_[static_cast<size_t>(stage)];
    const auto& list = lists_[static_cast<size_t>(stage)];
    if (next == list.size()) return false;
    const PipelineAction action = list[next];
    const int from = stage + (action.backward ? 1 : -1);
    const bool has_sender = from >= 0 && from < shape_.stages;
    if (has_sender && !arrived_.contains({from, action.backward, action.micro_batch})) return false;
    arrived_.insert({stage, action.backward, action.micro_batch});
    ++next;
    return true;
  }

  bool through() const {
    for (size_t stage = 0; stage < lists_.size(); ++stage)
      if (done_[stage] != lists_[stage].size()) return false;
    return true;
  }

 private:
  Shape shape_;
  std::vector<std::vector<PipelineAction>> lists_;
  std::vector<size_t> done_;
  std::set<std::tuple<int, bool, int>> arrived_;  ///< sent by a stage
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
