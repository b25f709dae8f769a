#include "core/pipeline.h"

#include <algorithm>

namespace motley {

int most_in_flight(int stages, int stage, int micro_batches) {
  return std::min(stages - stage, micro_batches);
}

std::vector<PipelineAction> one_forward_one_backward(int stages, int stage, int micro_batches) {
  const int ahead = most_in_flight(stages, stage, micro_batches);
  std::vector<PipelineAction> actions;
  int forward = 0;
  for (; forward < ahead; ++forward) actions.push_back({false, forward});
  for (int backward = 0; backward < micro_batches; ++backward) {
    actions.push_back({true, backward});
    if (forward < micro_batches) actions.push_back({false, forward++});
  }
  return actions;
}

}  // namespace motley
