#include "worker/train/slice_exchange.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "core/reducer_memory.h"
#include "worker/train/slice_classes.h"

namespace motley {
namespace {

/// These, rising, joined across gaps that cost less than a copy of their own.
std::vector<ParameterRange> ranges_over(std::vector<ElementRun> runs) {
  constexpr int64_t kSmallGap = 16384;
  std::sort(runs.begin(), runs.end(),
            [](const ElementRun& a, const ElementRun& b) { return a.offset < b.offset; });
  std::vector<ParameterRange> ranges;
  for (const ElementRun& run : runs) {
    const int64_t end = run.offset + run.count;
    if (ranges.empty() || run.offset > ranges.back().offset + ranges.back().count + kSmallGap)
      ranges.push_back({run.offset, 0});
    ParameterRange& last = ranges.back();
    last.count = std::max(last.count, end - last.offset);
  }
  return ranges;
}

/// Chunks begin to move to the host when they are first asked for.
class StagedGate final : public ElementGate {
 public:
  explicit StagedGate(StagedView& staged) : staged_(staged) {}

  Result<bool> readable(std::span<const ElementRun> runs) override {
    const std::vector<ParameterRange> ranges = ranges_of(runs);
    if (staged_.begun(ranges)) {
      MOTLEY_TRY_VOID(staged_.wait(ranges));
      return true;
    }
    MOTLEY_TRY_VOID(staged_.fetch(ranges));
    return false;
  }
  Result<Unit> written(std::span<const ElementRun> runs) override {
    return staged_.give_back(ranges_of(runs));
  }

 private:
  static std::vector<ParameterRange> ranges_of(std::span<const ElementRun> runs) {
    return ranges_over({runs.begin(), runs.end()});
  }
  StagedView& staged_;
};

Bytes bytes_for(const Plan& plan, const SliceClasses& classes, Rank self, int element_bytes) {
  const Islands islands = islands_of(plan);
  return reducer_memory(plan_reduction(classes.classes, islands, element_bytes), islands,
                        self.value())
      .total();
}

Result<std::unique_ptr<Reducer>> open_reducer(const Plan& plan, SliceClasses classes,
                                              Communicator& world, int element_bytes) {
  const Islands islands = islands_of(plan);
  return world.open_reducer(plan_reduction(classes.classes, islands, element_bytes), islands,
                            std::move(classes.runs));
}

std::pair<std::span<std::byte>, SumType> flat_of(const GradientSpans& gradients) {
  if (!gradients.fixed.empty()) return {std::as_writable_bytes(gradients.fixed), SumType::kInt64};
  if (!gradients.doubles.empty())
    return {std::as_writable_bytes(gradients.doubles), SumType::kFloat64};
  return {std::as_writable_bytes(gradients.floats), SumType::kFloat32};
}

}  // namespace

void FinalGate::close() {
  const std::lock_guard lock(mutex_);
  open_.clear();
}

void FinalGate::open(const ParameterRange& range) {
  const std::lock_guard lock(mutex_);
  int64_t begin = range.offset;
  int64_t end = begin + range.count;
  auto after = open_.upper_bound(begin);
  if (after != open_.begin() && std::prev(after)->second == begin) {
    begin = std::prev(after)->first;
    open_.erase(std::prev(after));
  }
  if (after != open_.end() && after->first == end) {
    end = after->second;
    open_.erase(after);
  }
  open_.emplace(begin, end);
}

Result<bool> FinalGate::readable(std::span<const ElementRun> runs) {
  const std::lock_guard lock(mutex_);
  return std::all_of(runs.begin(), runs.end(), [&](const ElementRun& run) {
    const auto after = open_.upper_bound(run.offset);
    return after != open_.begin() && std::prev(after)->second >= run.offset + run.count;
  });
}

Bytes slice_exchange_bytes(const Plan& plan, const ModelSpec& model, Rank self,
                           const ElementBytes& elements, const DeviceIslands& islands) {
  Bytes bytes = bytes_for(plan, slice_classes(plan, model, self, gradient_use(plan), islands), self,
                          elements.gradient);
  if (plan.shard_optimizer)
    bytes += bytes_for(plan, slice_classes(plan, model, self, SliceUse::kOwnersToHolders), self,
                       elements.weight);
  return bytes;
}

Result<std::unique_ptr<SliceExchange>> SliceExchange::open(const Plan& plan, const ModelSpec& model,
                                                           Communicator& world,
                                                           const ElementBytes& elements,
                                                           MemoryAccount& account,
                                                           const DeviceIslands& islands) {
  const Rank self(world.rank());
  std::unique_ptr<SliceExchange> slices(new SliceExchange());
  slices->charge_ = MemoryCharge(account, MemoryUse::kExchange,
                                 slice_exchange_bytes(plan, model, self, elements, islands));
  SliceClasses sums = slice_classes(plan, model, self, gradient_use(plan), islands);
  slices->has_gradients_ = sums.any();
  MOTLEY_TRY(slices->sums_, open_reducer(plan, std::move(sums), world, elements.gradient));
  if (!plan.shard_optimizer) return slices;
  SliceClasses weights = slice_classes(plan, model, self, SliceUse::kOwnersToHolders);
  slices->has_weights_ = weights.any();
  MOTLEY_TRY(slices->weights_, open_reducer(plan, std::move(weights), world, elements.weight));
  return slices;
}

Result<Unit> SliceExchange::sum(const GradientSpans& gradients) {
  const auto [flat, type] = flat_of(gradients);
  std::optional<StagedGate> gate;
  if (gradients.staged != nullptr) gate.emplace(*gradients.staged);
  MOTLEY_TRY_VOID(sums_->begin(flat, type, gate ? &*gate : nullptr));
  return sums_->wait();
}

Result<Unit> SliceExchange::begin_sum(const GradientSpans& gradients) {
  const auto [flat, type] = flat_of(gradients);
  finals_.close();
  return sums_->begin_beside(flat, type, finals_);
}

void SliceExchange::is_final(const ParameterRange& range) { finals_.open(range); }

/// Nothing is added: the type only tells how wide an element is.
Result<Unit> SliceExchange::distribute(std::span<std::byte> weights, int element_bytes) {
  MOTLEY_TRY_VOID(weights_->begin(
      weights, element_bytes == sizeof(float) ? SumType::kFloat32 : SumType::kFloat64));
  return weights_->wait();
}

}  // namespace motley
