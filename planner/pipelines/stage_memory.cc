// What stages need of memory, by the sum of what their layers do, and how few of their blocks have
// to compute again for it.

#include <algorithm>
#include <functional>
#include <utility>

#include "core/pipeline.h"
#include "planner/pipelines/pipeline_costs.h"

namespace motley {
namespace {

constexpr const char* kLayerKinds[] = {"embedding", "block", "head"};

}  // namespace

Result<Unit> PipelineCosts::count_memory(const CountLayers& count,
                                         const std::vector<int>& micro_batches, Group* group) {
  MOTLEY_TRY(const LayerMemoryTable table,
             count({group->driven, group->precision, Recompute::kNone, micro_batches}));
  for (size_t layer = 0; layer < kKinds; ++layer) {
    MOTLEY_TRY(group->memory[layer], counted_of(table, layer, model_->heads, micro_batches));
  }
  if (group->again.empty()) return Unit{};
  MOTLEY_TRY(const LayerMemoryTable again,
             count({group->driven, group->precision, recompute_, micro_batches}));
  MOTLEY_TRY(group->memory_again, counted_of(again, 1, model_->heads, micro_batches));
  return Unit{};
}

Result<std::vector<LayerMemory>> PipelineCosts::counted_of(const LayerMemoryTable& table,
                                                           size_t kind, int heads,
                                                           const std::vector<int>& micro_batches) {
  const int most = *std::max_element(micro_batches.begin(), micro_batches.end());
  std::vector<LayerMemory> memory(static_cast<size_t>(most) + 1);
  for (const int samples : micro_batches) {
    const auto found = table.find({kLayerKinds[kind], heads, samples});
    if (found == table.end())
      return fail(ErrorCode::kInternal, "the memory of a layer was not counted");
    memory[static_cast<size_t>(samples)] = found->second;
  }
  return memory;
}

Result<Unit> PipelineCosts::count_heads(const CountLayers& count,
                                        const std::vector<int>& micro_batches,
                                        std::vector<int> heads, Group* group) {
  MOTLEY_TRY(const LayerMemoryTable table,
             count({group->driven, group->precision, Recompute::kNone, micro_batches, heads}));
  for (size_t layer = 0; layer < kKinds; ++layer)
    for (const int own : heads) {
      MOTLEY_TRY(group->memory_of_heads[layer][own], counted_of(table, layer, own, micro_batches));
    }
  if (group->again.empty()) return Unit{};
  MOTLEY_TRY(const LayerMemoryTable again,
             count({group->driven, group->precision, recompute_, micro_batches, heads}));
  for (const int own : heads) {
    MOTLEY_TRY(group->memory_again_of_heads[own], counted_of(again, 1, own, micro_batches));
  }
  return Unit{};
}

const LayerMemory& PipelineCosts::memory(const Held& held, size_t kind) const {
  const Group& own = groups_[index(held.group)];
  const std::vector<LayerMemory>& by_micro_batch =
      held.heads == 0 ? own.memory[kind] : own.memory_of_heads[kind].at(held.heads);
  return by_micro_batch[index(held.micro_batch)];
}

const LayerMemory& PipelineCosts::memory_again(const Held& held) const {
  const Group& own = groups_[index(held.group)];
  const std::vector<LayerMemory>& by_micro_batch =
      held.heads == 0 ? own.memory_again : own.memory_again_of_heads.at(held.heads);
  return by_micro_batch[index(held.micro_batch)];
}

PipelineCosts::StageBytes PipelineCosts::bytes(const Held& held, int again) const {
  int64_t fixed = 0, saved = 0, transient = 0, state = 0;
  const auto add = [&](int layers, const LayerMemory& one) {
    fixed += layers * one.fixed.value();
    saved += layers * one.saved.value();
    state += layers * one.state.value();
    transient = std::max(transient, one.transient.value());
  };
  for (size_t kind = 0; kind < kKinds; ++kind) {
    const int once = held.layers[kind] - (kind == 1 ? again : 0);
    if (once > 0) add(once, memory(held, kind));
  }
  if (again > 0) add(again, memory_again(held));
  const LayerMemory& embedding = memory(held, 0);
  return {static_cast<double>(fixed) - tied_once(held, embedding.fixed),
          static_cast<double>(held.in_flight * saved + transient),
          static_cast<double>(state) - tied_once(held, embedding.state)};
}

/// What a stage with both ends holds once of what either was counted with.
double PipelineCosts::tied_once(const Held& held, Bytes embedding) const {
  if (held.layers[0] == 0 || held.layers[2] == 0) return 0;
  const double tied =
      static_cast<double>(tied_) * (held.heads == 0 ? model_->heads : held.heads) / model_->heads;
  return static_cast<double>(embedding.value()) * tied / (tied + static_cast<double>(held_[0]));
}

bool PipelineCosts::has_room(const Group& group, const StageBytes& stage, double bytes) const {
  const double besides = std::min(group.most_besides, group.most_besides_of_fixed * stage.fixed);
  return bytes * of_layers_ + besides <= static_cast<double>(group.usable.value());
}

bool PipelineCosts::fits(const Held& held, int again) const {
  const Group& own = groups_[index(held.group)];
  if (!own.priced) return false;  // nor is anything known of its memory
  const StageBytes stage = bytes(held, again);
  return has_room(own, stage, stage.sum());
}

/// From the first on that computes again, which may need more within a pass, each needs less than
/// the one before, or none does: `most` is asked before what is between.
int PipelineCosts::fewest_again(const Held& held, int low, int most) const {
  if (low > most || fits(held, low)) return low;
  if (low == most || !fits(held, most)) return most + 1;
  int high = most;
  ++low;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (fits(held, middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

bool PipelineCosts::any_computes_again() const {
  return !is_shared_for_free() &&
         std::any_of(groups_.begin(), groups_.end(),
                     [](const Group& group) { return !group.again.empty(); });
}

bool PipelineCosts::may_compute_again(int group) const {
  if (recompute_ == Recompute::kNone) return false;
  const TensorSet* const set = tensor_set(group);
  if (set == nullptr) return !groups_[index(group)].again.empty();
  return std::none_of(set->members.begin(), set->members.end(), [&](const auto& member) {
    return groups_[index(member.group)].again.empty();
  });
}

std::optional<int> PipelineCosts::computed_again(const PipelineStage& stage, int micro_batch,
                                                 int in_flight) const {
  if (is_shared_for_free()) return 0;
  if (held(stage) > most_held_) return std::nullopt;
  const LayerCounts counts = counts_of(stage);
  const TensorSet* const set = tensor_set(stage.group);
  const int most = may_compute_again(stage.group) ? counts[1] : 0;
  int fewest = 0;
  for (const Excluded& excluded : excluded(stage.group))
    if (micro_batch >= excluded.micro_batch && in_flight >= excluded.in_flight &&
        std::equal(counts.begin(), counts.end(), excluded.layers.begin(), std::greater_equal<>()))
      fewest = std::max(fewest, excluded.again + 1);
  if (set == nullptr)
    fewest = fewest_again({stage.group, 0, counts, micro_batch, in_flight}, fewest, most);
  // What is few enough for one rank may be too few for another.
  for (int before = -1; set != nullptr && before < fewest;) {
    before = fewest;
    for (int number = 0; number < set->size(); ++number) {
      const auto [group, heads] = member(stage.group, number);
      fewest = fewest_again({group, heads, counts, micro_batch, in_flight}, fewest, most);
    }
  }
  return fewest <= most ? std::optional(fewest) : std::nullopt;
}

bool PipelineCosts::fits(const Pipeline& pipeline, int samples) const {
  const int micro_batch = std::min(pipeline.micro_batch, samples);
  const int count = (samples + micro_batch - 1) / micro_batch;
  const auto stages = static_cast<int>(pipeline.stages.size());
  for (int s = 0; s < stages; ++s)
    if (!fits(pipeline.stages[index(s)], pipeline.micro_batch, most_in_flight(stages, s, count)))
      return false;
  return true;
}

/// If what one block saves by computing again is too little, so many of them as save enough.
void PipelineCosts::exclude(const Counted& counted) {
  const auto [own, heads] = member(counted.stage.group, counted.member);
  const LayerCounts layers = counts_of(counted.stage);
  int again = counted.again;
  if (may_compute_again(counted.stage.group)) {
    const Held held{own, heads, layers, counted.micro_batch, counted.in_flight};
    const Bytes saves = memory(held, 1).saved - memory_again(held).saved;
    const Bytes lacks = counted.needs - groups_[index(own)].usable;
    const int64_t each = std::max<int64_t>(1, counted.in_flight * saves.value());
    again += static_cast<int>(
        std::min<int64_t>(layers[1] - again, std::max<int64_t>(0, (lacks.value() - 1) / each)));
  }
  auto& known = counted.stage.group < groups()
                    ? groups_[index(counted.stage.group)].excluded
                    : sharing_[index(counted.stage.group - groups())].excluded;
  known.push_back({layers, counted.micro_batch, counted.in_flight, again});
}

void PipelineCosts::correct(const Counted& counted) {
  const auto [own, heads] = member(counted.stage.group, counted.member);
  Group& group = groups_[index(own)];
  const StageBytes sum =
      bytes({own, heads, counts_of(counted.stage), counted.micro_batch, counted.in_flight},
            counted.again);
  const double besides = static_cast<double>(counted.needs.value()) - sum.sum();
  group.most_besides = std::max(group.most_besides, besides);
  group.most_besides_of_fixed = std::max(group.most_besides_of_fixed, besides / sum.fixed);
}

/// Where it does not fit at all, all of its blocks.
int PipelineCosts::blocks_again(const PipelineStage& stage, int number, int stages, int micro_batch,
                                int samples) const {
  if (!may_compute_again(stage.group)) return 0;
  const int count = (samples + micro_batch - 1) / micro_batch;
  return computed_again(stage, micro_batch, most_in_flight(stages, number, count))
      .value_or(counts_of(stage)[1]);
}

}  // namespace motley
