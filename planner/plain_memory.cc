#include "planner/plain_memory.h"

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
#include "planner/cost_model.h"
#include "planner/links.h"

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

/// What gradients of elements so wide may be compressed with.
CodecSpec codec_of(const PlanRequest& request, int gradient_bytes) {
  const bool may =
      gradient_bytes == sizeof(float) && may_compress(request.job, request.profile.links);
  return may ? compression_wanted(request.job).codec : CodecSpec{};
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

/// The profile with what each of `least` to `most_ranks` ranks may need in all, on whichever
/// devices. A GPU's limit is not for host memory.
Profile with_tables_for(const PlanRequest& request, int least, int most_ranks) {
  Profile profile = request.profile;
  const ModelSpec& model = request.job.model;
  const int64_t elements = parameter_count(model);
  const int64_t owned = (elements + least - 1) / least;
  const PlainRanks ranks{most_ranks, static_cast<int>(request.fleet.hosts().size()),
                         most_round_trip_bytes(profile.links)};
  PlainRanks fewest = ranks;
  fewest.count = std::min(fewest_speakers(request.fleet), most_ranks);
  for (DeviceProfile& device : profile.devices) {
    const DeviceSpec* spec = request.fleet.find(device.device);
    if (spec == nullptr || spec->kind == DeviceKind::kCuda) continue;
    const ElementBytes bytes = element_bytes(request.job, *spec);
    const CodecSpec codec = codec_of(request, bytes.gradient);
    const bool compresses = codec.kind != CodecKind::kOff;
    Bytes more = snapshot_bytes(owned, bytes.weight, compresses) +
                 std::max(most_for_sums(model, bytes.gradient, ranks, codec),
                          most_for_sums(model, bytes.gradient, fewest, codec));
    if (request.job.parallel.sync.across > 1)  // averages
      more += plain_reducer_bytes(elements, bytes.weight, ranks);
    if (compresses)  // what is lost, on its way to checkpoints
      more += plain_reducer_bytes(elements, sizeof(float), ranks) +
              Bytes(elements * int64_t{sizeof(float)});
    for (MemoryPoint& point : device.memory) point.fixed += more;
  }
  return profile;
}

/// What a rank of a plan of whole replicas needs to sum gradients through hosts, as the worker's
/// SliceExchange.
struct ExchangeNeeds {
  Bytes bytes{0};
  bool compresses = false;
};

/// Of the sums themselves.
ExchangeNeeds sum_needs(const Plan& plan, const std::vector<int>& speakers, const ModelSpec& model,
                        int gradient_bytes, Rank rank) {
  const Islands islands = islands_of(plan);
  const auto of_reducer = [&](int64_t elements, const LinkCompression& compression) {
    ReductionOptions options;
    options.compression = compression;
    const ReductionPlan sums = plan_reduction({{speakers, speakers, std::nullopt, elements}},
                                              islands, gradient_bytes, options);
    return ExchangeNeeds{reducer_memory(sums, islands, rank.value()).total(), sums.compressed()};
  };
  FactorElements factored;
  if (gradient_bytes == sizeof(float) && crosses_slow_link(speakers, islands, plan.compression))
    factored = factored_elements(plan.compression.codec, model);
  ExchangeNeeds needs = of_reducer(parameter_count(model) - factored.matrices, plan.compression);
  if (factored.matrices == 0) return needs;
  for (const int64_t elements : {factored.p, factored.q})
    needs.bytes += of_reducer(elements, plan.compression.of_factors()).bytes;
  if (std::binary_search(speakers.begin(), speakers.end(), rank.value()))
    needs.bytes += factor_bytes(factored, plan.compression.codec);
  return {needs.bytes, true};
}

ExchangeNeeds exchange_needs(const Plan& plan, const DeviceIslands& gpus, const ModelSpec& model,
                             int gradient_bytes, Rank rank) {
  std::vector<int> ranks;
  for (int other = 0; other < plan.world_size(); ++other) ranks.push_back(other);
  const std::vector<int> speakers = gpus.speakers(ranks);
  if (speakers.size() == 1) return {};
  ExchangeNeeds needs = sum_needs(plan, speakers, model, gradient_bytes, rank);
  if (!needs.compresses) return needs;
  std::vector<ReductionClass> to_owners;
  for (const auto& [owner, owned] : owned_elements(plan))
    to_owners.push_back({ranks, {owner.value()}, owner.value(), owned});
  const Islands islands = islands_of(plan);
  needs.bytes +=
      reducer_memory(plan_reduction(to_owners, islands, sizeof(float)), islands, rank.value())
          .total() +
      Bytes(parameter_count(model) * int64_t{sizeof(float)});
  return needs;
}

/// The same between averages, and for these (worker/train/group_average.h).
ExchangeNeeds needs_apart(const PlanRequest& request, const Plan& plan, int64_t elements,
                          ElementBytes bytes, Rank rank, bool in_host) {
  const GroupPart part = group_part(plan, request.job.model, rank);
  ExchangeNeeds needs = exchange_needs(part.plan, device_islands(part.plan, request.fleet),
                                       request.job.model, bytes.gradient, part.self);
  ReductionClass averages{.contributors = {}, .receivers = {}, .owner = {}, .elements = elements};
  const std::vector<int> groups = group_of_ranks(plan);
  for (int other = 0; other < plan.world_size(); ++other) {
    averages.receivers.push_back(other);
    if (std::find(groups.begin(), groups.begin() + other, groups[static_cast<size_t>(other)]) ==
        groups.begin() + other)
      averages.contributors.push_back(other);
  }
  const Islands islands = islands_of(plan);
  needs.bytes +=
      reducer_memory(plan_reduction({averages}, islands, bytes.weight), islands, rank.value())
          .total();
  if (!in_host) needs.bytes += Bytes(elements * bytes.weight);
  return needs;
}

/// How many micro-batch sizes fit each device.
std::vector<size_t> sizes_that_fit(const Profile& profile, double headroom) {
  std::vector<size_t> sizes;
  for (const DeviceProfile& device : profile.devices)
    sizes.push_back(micro_batch_sizes(device, {1, false, headroom}).size());
  return sizes;
}

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
    if (bound_ > 0) search.gap = search.step_seconds / bound_ - 1;
    return std::move(*best_);
  }

 private:
  std::optional<Result<Plan>> best_;
  double bound_ = std::numeric_limits<double>::infinity();
  int64_t nodes_ = 0;
};

}  // namespace

RankMemory plain_memory(const PlanRequest& request, const Plan& plan, const DeviceIslands& gpus,
                        Rank rank, Bytes engine) {
  if (request.tables_of_ranks) return {.total = engine};
  const DeviceSpec* spec = request.fleet.find(plan.ranks[static_cast<size_t>(rank.value())].device);
  MOTLEY_CHECK(spec != nullptr, "a plan with a device that is not in the fleet");
  const ElementBytes bytes = element_bytes(request.job, *spec);
  const int64_t elements = parameter_count(request.job.model);
  const ExchangeNeeds exchange =
      trains_apart(plan)
          ? needs_apart(request, plan, elements, bytes, rank, spec->kind != DeviceKind::kCuda)
          : exchange_needs(plan, gpus, request.job.model, bytes.gradient, rank);
  const Bytes more = exchange.bytes +
                     snapshot_bytes(owned_elements(plan)[rank], bytes.weight, exchange.compresses);
  if (spec->kind == DeviceKind::kCuda) return {.total = engine, .host = more};
  return {.total = engine + more};
}

Result<Plan> best_over_ranks(const PlanRequest& request,
                             const std::function<Result<Plan>(const PlanRequest&)>& search) {
  MOTLEY_TRY(const FleetSpec fleet, admitted(request.fleet, request.job));
  const auto devices = static_cast<int>(fleet.devices.size());
  CountRange wanted = request.job.devices.count.value_or(CountRange{});
  wanted.low = std::max(wanted.low, 1);
  BestPlan best;
  const auto consider = [&](int least, int most, const Profile& profile) {
    JobSpec job = request.job;
    if (least > wanted.low || most < wanted.high) job.devices.count = CountRange{least, most};
    best.consider(search({job, request.fleet, profile, request.memory_headroom, true}));
  };
  const std::vector<int> numbers = numbers_of_ranks(wanted.low, std::min(wanted.high, devices));
  std::vector<size_t> tried;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const Profile profile = with_tables_for(request, numbers[i], devices);
    const std::vector<size_t> sizes = sizes_that_fit(profile, request.memory_headroom);
    // Where as much fits as with fewer, it would find no more than before.
    if (std::exchange(tried, sizes) != sizes) consider(numbers[i], wanted.high, profile);
    if (i + 1 == numbers.size()) break;
    // Fewer ranks need less for their sums than all would.
    const int most = numbers[i + 1] - 1;
    const Profile of_few = with_tables_for(request, numbers[i], most);
    if (sizes_that_fit(of_few, request.memory_headroom) != sizes &&
        least_seconds(request, of_few, most) < best.step_seconds())
      consider(numbers[i], most, of_few);
  }
  MOTLEY_TRY(Plan plan, best.take());
  MOTLEY_TRY_VOID(predict(request, &plan));  // with what this number of ranks needs
  plan.id = plan_id(plan);
  return plan;
}

}  // namespace motley
