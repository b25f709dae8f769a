#include "planner/costs/plain_memory.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/chunk_sizes.h"
#include "core/model.h"
#include "core/rank_memory.h"
#include "core/reducer_memory.h"
#include "core/spec/precisions.h"
#include "core/sync_groups.h"
#include "planner/costs/cost_model.h"
#include "planner/costs/links.h"
#include "planner/plain/device_index.h"

namespace motley {
namespace {

/// Of a gradient's element and of a weight's, as the device keeps them.
struct ElementBytes {
  int gradient = 0;
  int weight = 0;
};
ElementBytes element_bytes(const JobSpec& job, const DeviceSpec& device) {
  const int weight = full_bytes(precision_computed(job, device));
  return {gradient_element_bytes(job.train.numerics, weight), weight};
}

std::map<Rank, int64_t> owned_elements(const Plan& plan) {
  std::map<Rank, int64_t> owned;
  for (const Ownership& owner : plan.owners) owned[owner.owner] += owner.slice.elements();
  return owned;
}

/// What gradients of 32 bits may be compressed with.
CodecSpec codec_of(const PlanRequest& request) {
  return may_compress(request.job, request.profile.links) ? compression_wanted(request.job).codec
                                                          : CodecSpec{};
}

/// At most what summing gradients takes of one of the ranks.
Bytes most_for_sums(const ModelSpec& model, int gradient_bytes, const PlainRanks& ranks,
                    const CodecSpec& codec) {
  const FactorElements factored = factored_elements(codec, model);
  Bytes most = plain_reducer_bytes(parameter_count(model), gradient_bytes, ranks, codec);
  if (factored.matrices == 0) return most;
  for (const int64_t elements : {factored.p, factored.q})
    most += plain_reducer_bytes(elements, gradient_bytes, ranks, codec_of_values(codec.values));
  return most + factor_bytes(factored, codec);
}

/// Memory tables of what each of `least` to `most` ranks may need in all, on whichever devices. A
/// GPU's limit is not for host memory.
class TablesOfRanks {
 public:
  explicit TablesOfRanks(const PlanRequest& request)
      : request_(request),
        model_(request.job.model),
        elements_(parameter_count(model_)),
        hosts_(static_cast<int>(request.fleet.hosts().size())),
        speakers_(fewest_speakers(request.fleet)),
        round_trip_bytes_(most_round_trip_bytes(request.profile.links)),
        codec_of_floats_(codec_of(request)) {
    const DeviceIndex index(request.fleet, request.profile);
    for (const DeviceProfile& device : request.profile.devices) {
      const DeviceSpec* spec = index.spec(device.device);
      const bool counts = spec != nullptr && spec->kind != DeviceKind::kCuda;
      widths_.push_back(counts ? element_bytes(request.job, *spec) : ElementBytes{});
    }
  }

  /// How many micro-batch sizes fit each device.
  std::vector<size_t> sizes_that_fit(int least, int most) const {
    const std::vector<Bytes> more = all_more(least, most);
    std::vector<size_t> sizes;
    for (size_t i = 0; i < more.size(); ++i) {
      const DeviceProfile& device = request_.profile.devices[i];
      const Bytes usable = usable_memory(device, request_.memory_headroom);
      sizes.push_back(static_cast<size_t>(std::count_if(
          device.memory.begin(), device.memory.end(),
          [&](const MemoryPoint& point) { return point.total() + more[i] <= usable; })));
    }
    return sizes;
  }

  Profile profile(int least, int most) const {
    Profile profile = request_.profile;
    const std::vector<Bytes> more = all_more(least, most);
    for (size_t i = 0; i < more.size(); ++i)
      for (MemoryPoint& point : profile.devices[i].memory) point.fixed += more[i];
    return profile;
  }

 private:
  /// By device, besides its engine.
  std::vector<Bytes> all_more(int least, int most) const {
    std::map<std::pair<int, int>, Bytes> known{{{0, 0}, Bytes(0)}};
    std::vector<Bytes> more;
    for (const ElementBytes& bytes : widths_) {
      const auto [entry, is_new] = known.emplace(std::pair(bytes.gradient, bytes.weight), Bytes(0));
      if (is_new) entry->second = more_with(bytes, least, most);
      more.push_back(entry->second);
    }
    return more;
  }

  Bytes more_with(const ElementBytes& bytes, int least, int most) const {
    const PlainRanks ranks{most, hosts_, round_trip_bytes_};
    PlainRanks fewest = ranks;
    fewest.count = std::min(speakers_, most);
    const CodecSpec codec = bytes.gradient == sizeof(float) ? codec_of_floats_ : CodecSpec{};
    const bool compresses = codec.kind != CodecKind::kOff;
    Bytes more = snapshot_bytes((elements_ + least - 1) / least, bytes.weight, compresses) +
                 std::max(most_for_sums(model_, bytes.gradient, ranks, codec),
                          most_for_sums(model_, bytes.gradient, fewest, codec));
    if (request_.job.parallel.sync.across > 1)  // averages
      more += plain_reducer_bytes(elements_, bytes.weight, ranks);
    if (compresses)  // what is lost, on its way to checkpoints
      more += plain_reducer_bytes(elements_, sizeof(float), ranks) +
              Bytes(elements_ * int64_t{sizeof(float)});
    return more;
  }

  const PlanRequest& request_;
  const ModelSpec& model_;
  int64_t elements_;
  int hosts_, speakers_;
  double round_trip_bytes_;
  CodecSpec codec_of_floats_;
  std::vector<ElementBytes> widths_;  ///< by device; 0: its table is of all it needs
};

/// `low`, and what of 1, 2, 3, 4, 6, 8, 12, … lies between it and `high`.
std::vector<int> numbers_of_ranks(int low, int high) {
  std::vector<int> numbers = {low};
  for (int power = 1; power <= high; power *= 2)
    for (const int number : {power, power + power / 2})
      if (number > numbers.back() && number <= high) numbers.push_back(number);
  return numbers;
}

/// No `ranks` devices of the profile compute a step in less: the fastest of them, each at its best
/// micro-batch all the time.
double least_seconds(const PlanRequest& request, const Profile& profile, int ranks) {
  std::vector<double> rates;
  for (const DeviceProfile& device : profile.devices) {
    double fastest = 0;
    const LayerCurve* const curve = device.curve("model");
    if (curve == nullptr) continue;
    for (const int size : micro_batch_sizes(device, {1, false, request.memory_headroom}))
      fastest = std::max(fastest, size / curve->seconds_at(size));
    rates.push_back(fastest);
  }
  std::sort(rates.rbegin(), rates.rend());
  rates.resize(std::min(rates.size(), static_cast<size_t>(ranks)));
  return request.job.train.global_batch / std::accumulate(rates.begin(), rates.end(), 0.0);
}

/// The quickest of several plans, with one account of how all were found.
class BestPlan {
 public:
  void consider(Result<Plan> found) {
    if (found) {
      nodes_ += found->search.nodes;
      bound_ = std::min(bound_, found->search.lower_bound_step_seconds);
    }
    const bool better =
        found && best_ && (!*best_ || found->search.step_seconds < (*best_)->search.step_seconds);
    if (!best_ || better) best_ = std::move(found);
  }

  /// Infinite while there is none.
  double step_seconds() const {
    const bool found = best_ && *best_;
    return found ? (*best_)->search.step_seconds : std::numeric_limits<double>::infinity();
  }

  /// Of at least one.
  Result<Plan> take() {
    if (!*best_) return std::move(*best_);
    SearchRecord& search = (*best_)->search;
    search.nodes = nodes_;
    search.lower_bound_step_seconds = bound_;
    return std::move(*best_);
  }

 private:
  std::optional<Result<Plan>> best_;
  double bound_ = std::numeric_limits<double>::infinity();
  int64_t nodes_ = 0;
};

}  // namespace

PlainMemory::PlainMemory(const PlanRequest& request, const Plan& plan, const DeviceIslands& gpus,
                         const DeviceIndex& index)
    : request_(request), plan_(plan), index_(index), elements_(parameter_count(request.job.model)) {
  if (request.tables_of_ranks) return;
  std::vector<int> ranks(plan.ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  speakers_ = gpus.speakers(ranks);
  islands_ = islands_of(plan);
  owned_ = owned_elements(plan);
  apart_ = trains_apart(plan);
}

/// As the worker's SliceExchange, where replicas are whole.
const PlainMemory::Sums& PlainMemory::sums_of(int gradient_bytes) {
  const auto [entry, is_new] = sums_.emplace(gradient_bytes, Sums{});
  Sums& sums = entry->second;
  if (!is_new) return sums;
  const auto add = [&](int64_t elements, const LinkCompression& compression) {
    ReductionOptions options;
    options.compression = compression;
    sums.plans.push_back(plan_reduction({{speakers_, speakers_, std::nullopt, elements}}, islands_,
                                        gradient_bytes, options));
  };
  FactorElements factored;
  const CodecSpec& codec = plan_.compression.codec;
  if (gradient_bytes == sizeof(float) && crosses_slow_link(speakers_, islands_, plan_.compression))
    factored = factored_elements(codec, request_.job.model);
  add(elements_ - factored.matrices, plan_.compression);
  sums.compresses = sums.plans.back().compressed();
  if (factored.matrices > 0) {
    for (const int64_t elements : {factored.p, factored.q})
      add(elements, plan_.compression.of_factors());
    sums.more = factor_bytes(factored, codec);
    sums.compresses = true;
  }
  if (!sums.compresses) return sums;
  std::vector<int> ranks(plan_.ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<ReductionClass> to_owners;
  for (const auto& [owner, owned] : owned_)
    to_owners.push_back({ranks, {owner.value()}, owner.value(), owned});
  sums.plans.push_back(plan_reduction(to_owners, islands_, sizeof(float)));
  return sums;
}

PlainMemory::Needs PlainMemory::exchange_needs(int gradient_bytes, Rank rank) {
  if (speakers_.size() == 1) return {};
  const Sums& sums = sums_of(gradient_bytes);
  Needs needs{Bytes(0), sums.compresses};
  for (const ReductionPlan& plan : sums.plans)
    needs.bytes += reducer_memory(plan, islands_, rank.value()).total();
  if (std::binary_search(speakers_.begin(), speakers_.end(), rank.value()))
    needs.bytes += sums.more;
  if (sums.compresses) needs.bytes += Bytes(elements_ * int64_t{sizeof(float)});
  return needs;
}

/// The same between averages, and for these (worker/train/group_average.h).
PlainMemory::Needs PlainMemory::needs_apart(int gradient_bytes, int weight_bytes, Rank rank,
                                            bool in_host) const {
  const GroupPart part = group_part(plan_, request_.job.model, rank);
  const DeviceIslands gpus = device_islands(part.plan, request_.fleet);
  Needs needs =
      PlainMemory(request_, part.plan, gpus, index_).exchange_needs(gradient_bytes, part.self);
  ReductionClass averages{.contributors = {}, .receivers = {}, .owner = {}, .elements = elements_};
  const std::vector<int> groups = group_of_ranks(plan_);
  for (int other = 0; other < plan_.world_size(); ++other) {
    averages.receivers.push_back(other);
    if (std::find(groups.begin(), groups.begin() + other, groups[static_cast<size_t>(other)]) ==
        groups.begin() + other)
      averages.contributors.push_back(other);
  }
  needs.bytes +=
      reducer_memory(plan_reduction({averages}, islands_, weight_bytes), islands_, rank.value())
          .total();
  if (!in_host) needs.bytes += Bytes(elements_ * weight_bytes);
  return needs;
}

RankMemory PlainMemory::of(Rank rank, Bytes engine) {
  if (request_.tables_of_ranks) return {.total = engine};
  const DeviceSpec* spec = index_.spec(plan_.ranks[static_cast<size_t>(rank.value())].device);
  MOTLEY_CHECK(spec != nullptr, "a plan with a device that is not in the fleet");
  const ElementBytes bytes = element_bytes(request_.job, *spec);
  const bool in_host = spec->kind != DeviceKind::kCuda;
  const Needs needs = apart_ ? needs_apart(bytes.gradient, bytes.weight, rank, in_host)
                             : exchange_needs(bytes.gradient, rank);
  const auto owned = owned_.find(rank);
  const Bytes more = needs.bytes + snapshot_bytes(owned == owned_.end() ? 0 : owned->second,
                                                  bytes.weight, needs.compresses);
  if (!in_host) return {.total = engine, .host = more};
  return {.total = engine + more};
}

Result<Plan> best_over_ranks(const PlanRequest& request,
                             const std::function<Result<Plan>(const PlanRequest&)>& search) {
  MOTLEY_TRY(const FleetSpec fleet, admitted(request.fleet, request.job));
  const auto devices = static_cast<int>(fleet.devices.size());
  CountRange wanted = request.job.devices.count.value_or(CountRange{});
  wanted.low = std::max({wanted.low, 1, request.job.parallel.data.value_or(1)});
  wanted.high = std::min(wanted.high, request.job.parallel.data.value_or(wanted.high));
  if (wanted.low > std::min(wanted.high, devices)) return search(request);  // it says why not
  BestPlan best;
  const auto consider = [&](int least, int most, const Profile& profile) {
    PlanRequest some{request.job, request.fleet, profile, request.memory_headroom};
    some.tables_of_ranks = true;
    some.previous = request.previous;
    if (least > wanted.low || most < wanted.high) some.whole_devices = {least, most};
    best.consider(search(some));
  };
  const TablesOfRanks tables(request);
  const std::vector<int> numbers = numbers_of_ranks(wanted.low, std::min(wanted.high, devices));
  std::vector<size_t> tried;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const std::vector<size_t> sizes = tables.sizes_that_fit(numbers[i], devices);
    // Where as much fits as with fewer, it would find no more than before.
    if (std::exchange(tried, sizes) != sizes)
      consider(numbers[i], wanted.high, tables.profile(numbers[i], devices));
    if (i + 1 == numbers.size()) break;
    // Fewer ranks need less for their sums than all would.
    const int most = numbers[i + 1] - 1;
    if (tables.sizes_that_fit(numbers[i], most) == sizes) continue;
    const Profile of_few = tables.profile(numbers[i], most);
    if (least_seconds(request, of_few, most) < best.step_seconds())
      consider(numbers[i], most, of_few);
  }
  MOTLEY_TRY(Plan plan, best.take());
  MOTLEY_TRY_VOID(predict(request, &plan));  // with what this number of ranks needs
  plan.id = plan_id(plan);
  return plan;
}

}  // namespace motley
