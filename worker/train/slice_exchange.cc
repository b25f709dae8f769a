#include "worker/train/slice_exchange.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "core/reducer_memory.h"

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

/// Gradients alone are compressed.
ReductionPlan reduction_for(const Plan& plan, const std::vector<ReductionClass>& classes,
                            SliceUse use, int element_bytes) {
  ReductionOptions options;
  if (use == gradient_use(plan)) options.compression = plan.compression;
  if (use == SliceUse::kOwnersToHolders) options.order = ReductionOrder::kFromTheBeginning;
  return plan_reduction(classes, islands_of(plan), element_bytes, options);
}

Result<std::unique_ptr<Reducer>> open_reducer(const Plan& plan, SliceClasses classes, SliceUse use,
                                              Communicator& world, int element_bytes) {
  return world.open_reducer(reduction_for(plan, classes.classes, use, element_bytes),
                            islands_of(plan), std::move(classes.runs));
}

/// Those of gradients of elements so wide.
std::vector<FactoredTensor> tensors_factored(const Plan& plan, const ModelSpec& model,
                                             int element_bytes, const DeviceIslands& islands = {}) {
  if (element_bytes != sizeof(float)) return {};
  return factored_tensors(plan, model, islands);
}

/// Whoever speaks for its GPUs: of islands within hosts.
std::vector<ElementRun> compressed_runs(const Plan& plan, const ModelSpec& model, Rank self,
                                        int element_bytes) {
  const SliceUse use = gradient_use(plan);
  const SliceClasses held = slice_classes(plan, model, self, use);
  const ReductionPlan sums = reduction_for(plan, held.classes, use, element_bytes);
  std::vector<ElementRun> compressed;
  const ParameterLayout mine = layout_of(plan, model, self);
  for (const FactoredTensor& tensor : tensors_factored(plan, model, element_bytes))
    if (const FlatTensor* flat = mine.find(tensor.name))
      compressed.push_back({.offset = flat->offset, .count = flat->elements()});
  for (size_t part = 0; part < held.runs.size(); ++part)
    if (sums.parts[part].compressed())
      compressed.insert(compressed.end(), held.runs[part].begin(), held.runs[part].end());
  return compressed;
}

std::vector<ElementRun> owned_runs(const Plan& plan, const ModelSpec& model, Rank self) {
  const ParameterLayout mine = layout_of(plan, model, self);
  std::vector<ElementRun> owned;
  for (const Ownership& owner : plan.owners) {
    if (owner.owner != self) continue;
    const FlatTensor& flat = *mine.find(owner.tensor);
    for (const CopyRun& run : copy_runs(flat.slice, owner.slice))
      owned.push_back({.offset = flat.offset + run.from_offset, .count = run.count});
  }
  return owned;
}

std::vector<ElementRun> received_runs(const SliceClasses& weights, Rank self) {
  std::vector<ElementRun> received;
  for (size_t i = 0; i < weights.classes.size(); ++i) {
    const std::vector<int>& receivers = weights.classes[i].receivers;
    if (std::binary_search(receivers.begin(), receivers.end(), self.value()))
      received.insert(received.end(), weights.runs[i].begin(), weights.runs[i].end());
  }
  std::sort(received.begin(), received.end(),
            [](const ElementRun& a, const ElementRun& b) { return a.offset < b.offset; });
  return received;
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
  return std::all_of(runs.begin(), runs.end(), [&](const ElementRun& run) { return is_open(run); });
}

bool FinalGate::is_open(const ElementRun& run) {
  const std::lock_guard lock(mutex_);
  const auto after = open_.upper_bound(run.offset);
  return after != open_.begin() && std::prev(after)->second >= run.offset + run.count;
}

Result<Unit> ArrivalGate::written(std::span<const ElementRun> runs) {
  for (const ElementRun& run : runs) written_.open({run.offset, run.count});
  return Unit{};
}

bool ArrivalGate::has_arrived(const ParameterRange& range) {
  const int64_t end = range.offset + range.count;
  auto run = std::partition_point(arriving_.begin(), arriving_.end(), [&](const ElementRun& other) {
    return other.offset + other.count <= range.offset;
  });
  for (; run != arriving_.end() && run->offset < end; ++run) {
    const int64_t begin = std::max(run->offset, range.offset);
    const int64_t count = std::min(run->offset + run->count, end) - begin;
    if (!written_.is_open({.offset = begin, .count = count})) return false;
  }
  return true;
}

/// Planned as open() does.
SliceExchangeCounter::SliceExchangeCounter(PlanClasses& classes, const ElementBytes& elements)
    : plan_(classes.plan()), model_(classes.model()), islands_(islands_of(plan_)) {
  factored_ = tensors_factored(plan_, model_, elements.gradient, classes.islands());
  const auto add = [&](SliceUse use, int element_bytes, const std::set<std::string>& without = {}) {
    reductions_.push_back(reduction_for(plan_, classes.of(use, without), use, element_bytes));
  };
  add(gradient_use(plan_), elements.gradient, names_of(factored_));
  compresses_ = reductions_.front().compressed() || !factored_.empty();
  if (plan_.shard_optimizer) add(SliceUse::kOwnersToHolders, elements.weight);
  if (compresses_) add(SliceUse::kAllToOwners, sizeof(float));
}

SliceExchangeNeeds SliceExchangeCounter::count(Rank self) const {
  Bytes bytes{0};
  for (const ReductionPlan& reduction : reductions_)
    bytes += reducer_memory(reduction, islands_, self.value()).total();
  if (!factored_.empty()) bytes += factored_sums_bytes(plan_, factored_, self);
  if (compresses_)
    bytes += Bytes(layout_of(plan_, model_, self).elements() * int64_t{sizeof(float)});
  return {bytes, compresses_};
}

SliceExchangeNeeds slice_exchange_needs(const Plan& plan, const ModelSpec& model, Rank self,
                                        const ElementBytes& elements,
                                        const DeviceIslands& islands) {
  PlanClasses classes(plan, model, islands);
  return SliceExchangeCounter(classes, elements).count(self);
}

Result<std::unique_ptr<SliceExchange>> SliceExchange::open(const Plan& plan, const ModelSpec& model,
                                                           Communicator& world,
                                                           const ElementBytes& elements,
                                                           MemoryAccount& account,
                                                           const DeviceIslands& islands) {
  const Rank self(world.rank());
  std::unique_ptr<SliceExchange> slices(new SliceExchange());
  const SliceExchangeNeeds needs = slice_exchange_needs(plan, model, self, elements, islands);
  slices->charge_ = MemoryCharge(account, MemoryUse::kExchange, needs.bytes);
  MOTLEY_TRY_VOID(slices->open_sums(plan, model, world, elements.gradient, islands));
  if (needs.compresses) {
    slices->compressed_ = compressed_runs(plan, model, self, elements.gradient);
    slices->owned_ = owned_runs(plan, model, self);
    MOTLEY_TRY_VOID(slices->open_residuals(plan, model, world));
  }
  if (!plan.shard_optimizer) return slices;
  SliceClasses weights = slice_classes(plan, model, self, SliceUse::kOwnersToHolders);
  slices->has_weights_ = weights.any();
  slices->arrivals_.expect(received_runs(weights, self));
  MOTLEY_TRY(slices->weights_, open_reducer(plan, std::move(weights), SliceUse::kOwnersToHolders,
                                            world, elements.weight));
  return slices;
}

Result<Unit> SliceExchange::open_sums(const Plan& plan, const ModelSpec& model, Communicator& world,
                                      int element_bytes, const DeviceIslands& islands) {
  const auto factored = tensors_factored(plan, model, element_bytes, islands);
  const SliceUse use = gradient_use(plan);
  SliceClasses sums =
      slice_classes(plan, model, Rank(world.rank()), use, islands, names_of(factored));
  has_gradients_ = sums.any();
  MOTLEY_TRY(sums_, open_reducer(plan, std::move(sums), use, world, element_bytes));
  if (factored.empty()) return Unit{};
  MOTLEY_TRY(factored_, FactoredSums::open(plan, model, factored, world));
  has_gradients_ = has_gradients_ || factored_->any();
  return Unit{};
}

Result<Unit> SliceExchange::open_residuals(const Plan& plan, const ModelSpec& model,
                                           Communicator& world) {
  const Rank self(world.rank());
  residuals_.resize(static_cast<size_t>(layout_of(plan, model, self).elements()));
  MOTLEY_TRY(residual_sums_,
             open_reducer(plan, slice_classes(plan, model, self, SliceUse::kAllToOwners),
                          SliceUse::kAllToOwners, world, sizeof(float)));
  return Unit{};
}

/// What this rank alone holds it does not compress.
Result<Unit> SliceExchange::gather_residuals() {
  std::fill(residuals_.begin(), residuals_.end(), 0.0F);
  sums_->gather_residuals(residuals_);
  if (factored_) factored_->gather_residuals(residuals_);
  MOTLEY_TRY_VOID(
      residual_sums_->begin(std::as_writable_bytes(std::span(residuals_)), SumType::kFloat32));
  return residual_sums_->wait();
}

int64_t SliceExchange::restore_residuals() {
  sums_->restore_residuals(residuals_);
  if (factored_) factored_->restore_residuals(residuals_);
  std::vector<bool> compressed(residuals_.size(), false);
  for (const ElementRun& run : compressed_)
    std::fill_n(compressed.begin() + run.offset, run.count, true);
  int64_t useless = 0;
  for (const ElementRun& run : owned_)
    for (int64_t i = run.offset; i < run.offset + run.count; ++i)
      useless += residuals_[static_cast<size_t>(i)] != 0 && !compressed[static_cast<size_t>(i)];
  return useless;
}

Result<Unit> SliceExchange::sum(const GradientSpans& gradients) {
  const auto [flat, type] = flat_of(gradients);
  std::optional<StagedGate> gate;
  if (gradients.staged != nullptr) gate.emplace(*gradients.staged);
  if (factored_) MOTLEY_TRY_VOID(factored_->sum(gradients));
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
Result<Unit> SliceExchange::begin_distribute(std::span<std::byte> weights, int element_bytes) {
  arrivals_.begin();
  distributing_ = true;
  return weights_->begin_beside(
      weights, element_bytes == sizeof(float) ? SumType::kFloat32 : SumType::kFloat64, arrivals_);
}

Result<Unit> SliceExchange::arrive(const ParameterRange& range) {
  constexpr std::chrono::microseconds kLook(100);
  while (!has_arrived(range)) MOTLEY_TRY_VOID(weights_->wait_for(kLook));
  return Unit{};
}

Result<Unit> SliceExchange::finish_distribute() {
  return std::exchange(distributing_, false) ? weights_->wait() : Result<Unit>(Unit{});
}

}  // namespace motley
