#include "planner/pipelines/stage_costs.h"

#include <algorithm>

#include "core/pipeline.h"

namespace motley {
namespace {

/// By what each of `count` micro-batches takes the stage.
StageCost cost_of_passes(const AlikePasses& passes, int number, int stages, int count) {
  const int first = std::min(most_in_flight(stages, number, count), count - 1);
  return {.work = first * passes.first_forward.value() +
                  (count - 1 - first) * passes.forward.value() + passes.last_forward.value() +
                  (count - 1) * passes.backward.value() + passes.last_backward.value(),
          .ahead = passes.first_forward.value() - passes.forward.value(),
          .first_forward = (count > 1 ? passes.first_forward : passes.last_forward).value(),
          .last_backward = passes.last_backward.value(),
          .ready = passes.ready.value()};
}

}  // namespace

StageCost stage_cost(const PipelineCosts& costs, const PipelineStage& stage, int number, int stages,
                     int micro_batch, int samples) {
  const int count = (samples + micro_batch - 1) / micro_batch;
  return cost_of_passes(costs.passes(stage, number, stages, micro_batch, samples), number, stages,
                        count);
}

const StageCosts::ByLayers& StageCosts::of(int group, int number, int stages) {
  const auto [found, is_new] = known_.try_emplace({stages, number, group});
  if (is_new) found->second = find(group, number, stages);
  return found->second;
}

StageCosts::ByLayers StageCosts::find(int group, int number, int stages) const {
  const int layers = costs_.layers(), count = micro_batches();
  const int in_flight = most_in_flight(stages, number, count);
  ByLayers known;
  for (int own = 1; own <= layers - stages + 1; ++own) {
    const int first = number == 0 ? 0 : number + 1 == stages ? layers - own : 1;
    const PipelineStage stage{group, first, first + own - 1};
    if (!costs_.fits(stage, micro_batch_, in_flight)) break;  // nor do more layers
    const AlikePasses passes = costs_.passes(stage, number, stages, micro_batch_, samples_);
    known.push_back({passes, cost_of_passes(passes, number, stages, count)});
  }
  return known;
}

double StageCosts::least_of_busiest(const std::vector<int>& row) {
  const Least &first = least(row.front()), &last = least(row.back());
  if (first.block <= 0 || last.block <= 0) return 0;
  double blocks = costs_.layers() - 2 + first.embedding / first.block + last.head / last.block;
  double in_a_second = 0;
  for (const int group : row) in_a_second += 1 / least(group).block;
  return blocks / in_a_second;
}

/// Of those that share a stage one may be slowest at blocks and another at the embedding or the
/// head, so that the two do not add up.
const StageCosts::Least& StageCosts::least(int group) {
  const auto [found, is_new] = least_.try_emplace(group);
  const bool is_shared = costs_.tensor_set(group) != nullptr;
  if (!is_new || (!is_shared && !costs_.priced(group))) return found->second;
  const int head = costs_.layers() - 1;
  found->second.block = seconds({group, 1, 1});
  if (is_shared) return found->second;
  found->second.embedding = seconds({group, 0, 0});
  found->second.head = seconds({group, head, head});
  return found->second;
}

/// Without what begins sections, computed once.
double StageCosts::seconds(const PipelineStage& stage) const {
  const int others = micro_batches() - 1, rest = samples_ - others * micro_batch_;
  const PassSeconds last =
      rest == micro_batch_ ? costs_.pass(stage, rest) : costs_.last_pass(stage, rest);
  const PassSeconds full = others > 0 ? costs_.pass(stage, micro_batch_) : PassSeconds{};
  return others * (full.forward + full.backward) + last.forward + last.backward;
}

}  // namespace motley
