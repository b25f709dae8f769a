#include "worker/train/group_average.h"

#include <utility>

#include "core/reducer_memory.h"
#include "core/sync_groups.h"

namespace motley {
namespace {

ReductionPlan reduction_of(const Plan& plan, const std::vector<ReductionClass>& classes,
                           int element_bytes) {
  return plan_reduction(classes, islands_of(plan), element_bytes);
}

Bytes reducer_needs(const Plan& plan, const std::vector<ReductionClass>& classes, Rank self,
                    int element_bytes) {
  return reducer_memory(reduction_of(plan, classes, element_bytes), islands_of(plan), self.value())
      .total();
}

Bytes staging_needs(const Plan& plan, const ModelSpec& model, Rank self, int element_bytes,
                    bool in_host) {
  return Bytes(in_host ? 0 : layout_of(plan, model, self).elements() * element_bytes);
}

/// Every group has samples: by more than 0.
template <class T>
void scale(std::span<std::byte> flat, double factor) {
  T* const values = reinterpret_cast<T*>(flat.data());
  for (size_t i = 0; i < flat.size() / sizeof(T); ++i)
    values[i] = static_cast<T>(values[i] * factor);
}

}  // namespace

Bytes group_average_needs(PlanClasses& classes, Rank self, int element_bytes, bool in_host) {
  const Plan& plan = classes.plan();
  if (!trains_apart(plan)) return Bytes(0);
  return reducer_needs(plan, classes.of(SliceUse::kGroupsToHolders), self, element_bytes) +
         staging_needs(plan, classes.model(), self, element_bytes, in_host);
}

Result<std::unique_ptr<GroupAverage>> GroupAverage::open(const Plan& plan, const ModelSpec& model,
                                                         Communicator& world, Engine& engine,
                                                         bool in_host, MemoryAccount& account) {
  const Rank self(world.rank());
  const int element_bytes = engine.element_bytes();
  SliceClasses classes = slice_classes(plan, model, self, SliceUse::kGroupsToHolders);
  std::unique_ptr<GroupAverage> average(new GroupAverage(engine));
  average->share_ = group_part(plan, model, self).share;
  average->charge_ = MemoryCharge(account, MemoryUse::kExchange,
                                  reducer_needs(plan, classes.classes, self, element_bytes));
  average->staging_ = CountedMemory(account, MemoryUse::kExchange,
                                    staging_needs(plan, model, self, element_bytes, in_host));
  MOTLEY_TRY(average->reducer_,
             world.open_reducer(reduction_of(plan, classes.classes, element_bytes),
                                islands_of(plan), std::move(classes.runs)));
  return average;
}

Result<Unit> GroupAverage::run() {
  for (const auto which : {Engine::State::kWeight, Engine::State::kAdamM, Engine::State::kAdamV})
    MOTLEY_TRY_VOID(average(which));
  return Unit{};
}

Result<Unit> GroupAverage::average(Engine::State which) {
  if (staging_.bytes().empty()) {
    MOTLEY_TRY(const std::span<std::byte> state, engine_.state(which));
    MOTLEY_TRY_VOID(reduce(state));
  } else {
    MOTLEY_TRY_VOID(engine_.read_state(which, Bytes(0), staging_.bytes()));
    MOTLEY_TRY_VOID(reduce(staging_.bytes()));
    MOTLEY_TRY_VOID(engine_.write_state(which, Bytes(0), staging_.bytes()));
  }
  return engine_.state_written(which);
}

Result<Unit> GroupAverage::reduce(std::span<std::byte> flat) {
  const bool wide = engine_.element_bytes() == sizeof(double);
  wide ? scale<double>(flat, share_) : scale<float>(flat, share_);
  MOTLEY_TRY_VOID(reducer_->begin(flat, wide ? SumType::kFloat64 : SumType::kFloat32));
  return reducer_->wait();
}

}  // namespace motley
