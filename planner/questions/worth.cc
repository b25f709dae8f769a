#include "planner/questions/worth.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "planner/costs/cost_model.h"

namespace motley {
namespace {

constexpr double kRoundingOfSteps = 1e-6;  ///< relative
constexpr double kMostIndifference = 0.05;

using TypeSet = std::vector<std::string>;

/// Those of the fleet's types that the plan uses, or those that it does not.
TypeSet types_used(const Plan& plan, const FleetSpec& fleet, bool used) {
  TypeSet types = types_of(fleet);
  std::erase_if(types, [&](const std::string& type) {
    const bool is_used = std::any_of(plan.ranks.begin(), plan.ranks.end(),
                                     [&](const RankPlacement& rank) { return rank.type == type; });
    return is_used != used;
  });
  return types;
}

bool uses_device(const Plan& plan, const std::string& id) {
  return std::any_of(plan.ranks.begin(), plan.ranks.end(),
                     [&](const RankPlacement& rank) { return rank.device == id; });
}

/// The device of each of these types that is quickest alone.
std::vector<std::string> quickest_of(const PlanRequest& request, const FleetSpec& fleet,
                                     const TypeSet& types) {
  std::vector<std::string> quickest;
  for (const std::string& type : types) {
    double best = -1;
    std::string id;
    for (const DeviceSpec& device : fleet.devices) {
      const DeviceProfile* measured = request.profile.find(device.id);
      if (device.type != type || measured == nullptr || measured->curve("model") == nullptr)
        continue;
      const double speed = solo_samples_per_second(*measured, request.job.train.global_batch,
                                                   micro_batch_rule(request));
      if (speed > best) best = speed, id = device.id;
    }
    quickest.push_back(id);
  }
  return quickest;
}

bool is_among(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Of a fleet of which `freely`, its quickest plan, leaves some types out: the devices with which
/// it may be quickest with all of them. All; what is used and one of each other; one of each.
std::vector<FleetSpec> fleets_with_each(const PlanRequest& request, const FleetSpec& fleet,
                                        const Plan& freely) {
  const auto one_each = quickest_of(request, fleet, types_used(freely, fleet, /*used=*/false));
  const auto one_of_all = quickest_of(request, fleet, types_of(fleet));
  return {
      fleet,
      part_of(fleet,
              [&](const DeviceSpec& device) {
                return uses_device(freely, device.id) || is_among(one_each, device.id);
              }),
      part_of(fleet, [&](const DeviceSpec& device) { return is_among(one_of_all, device.id); })};
}

/// The quickest plan that search finds with no device idle; empty where there is none. Where
/// none is below that, whether it fits does not matter.
Result<std::optional<Plan>> plan_with_all(const PlanRequest& request, const FleetSpec& fleet,
                                          double below, const SearchPlan& search) {
  const auto devices = static_cast<int>(fleet.devices.size());
  const CountRange wanted = request.job.devices.count.value_or(CountRange{});
  if (devices < wanted.low || devices > wanted.high) return std::optional<Plan>();
  JobSpec job = request.job;
  job.devices.count = CountRange{devices, devices};
  PlanRequest asked{job, fleet, request.profile, request.memory_headroom, request.tables_of_ranks};
  asked.below = below;
  Result<Plan> plan = search(unproved(asked));
  if (!plan && !means_no_plan(plan.error())) return fail(plan.error());
  return plan ? std::optional<Plan>(*std::move(plan)) : std::nullopt;
}

Result<std::optional<Plan>> plan_with_each_type(const PlanRequest& request, const FleetSpec& fleet,
                                                const Plan& freely, const SearchPlan& search) {
  std::optional<Plan> best;
  for (const FleetSpec& devices : fleets_with_each(request, fleet, freely)) {
    const double below =
        best ? best->prediction.step_seconds : std::numeric_limits<double>::infinity();
    MOTLEY_TRY(auto plan, plan_with_all(request, devices, below, search));
    if (!plan || !types_used(*plan, fleet, /*used=*/false).empty()) continue;
    if (!best || plan->prediction.step_seconds < best->prediction.step_seconds)
      best = std::move(plan);
  }
  return best;
}

/// Why a plan does without a type: what it says of the first device of it.
std::string why_without(const Plan& plan, const FleetSpec& fleet, const TypeSet& types) {
  for (const LeftOut& left : plan.left_out) {
    const DeviceSpec* device = fleet.find(left.device);
    if (device != nullptr && is_among(types, device->type)) return device->type + ": " + left.why;
  }
  return listed_types(types) + " cannot take part";
}

std::optional<double> cost_of(const FleetSpec& fleet, const Plan& plan) {
  double cost = 0;
  for (const RankPlacement& rank : plan.ranks) {
    const DeviceSpec* device = fleet.find(rank.device);
    if (device == nullptr || device->price_per_hour <= 0) return std::nullopt;
    cost += device->price_per_hour;
  }
  return cost;
}

std::vector<TypeShare> shares_of_types(const FleetSpec& fleet) {
  std::vector<TypeShare> shares;
  for (const std::string& type : types_of(fleet)) {
    const auto devices =
        std::count_if(fleet.devices.begin(), fleet.devices.end(),
                      [&](const DeviceSpec& device) { return device.type == type; });
    shares.push_back({type, static_cast<int>(devices), 0});
  }
  return shares;
}

void take_plan(const Plan& plan, const FleetSpec& fleet, Mix* mix) {
  for (TypeShare& share : mix->types)
    share.used = static_cast<int>(
        std::count_if(plan.ranks.begin(), plan.ranks.end(),
                      [&](const RankPlacement& rank) { return rank.type == share.type; }));
  mix->step_seconds = plan.prediction.step_seconds;
  mix->samples_per_second = plan.prediction.samples_per_second;
  mix->solo_sum_samples_per_second = plan.prediction.solo_sum_samples_per_second;
  mix->uncertainty = plan.prediction.uncertainty;
  mix->cost_per_hour = cost_of(fleet, plan);
}

/// Mixes of one request, and the error of the first set asked for.
class Comparison {
 public:
  Comparison(const PlanRequest& request, const FleetSpec& fleet, const SearchPlan& search)
      : request_(request), fleet_(fleet), search_(search) {}

  Result<Unit> add(const TypeSet& types) {
    const FleetSpec fleet = only_types(fleet_, types);
    Mix& mix = mixes_.emplace_back();
    mix.types = shares_of_types(fleet);
    const Result<Plan> freely = search_(unproved(asked_of(request_, fleet)));
    if (!freely && !means_no_plan(freely.error())) return fail(freely.error());
    if (!freely) {
      if (mixes_.size() == 1) error_ = freely.error();
      mix.why_not = freely.error().message;
      return Unit{};
    }
    if (mixes_.size() == 1) quickest_ = types_used(*freely, fleet, /*used=*/true);
    mix.better_without = types_used(*freely, fleet, /*used=*/false);
    std::optional<Plan> plan = *freely;
    if (!mix.better_without.empty()) {
      MOTLEY_TRY(plan, plan_with_each_type(request_, fleet, *freely, search_));
    }
    // The search that could leave them out had missed it.
    if (plan && plan->prediction.step_seconds < freely->prediction.step_seconds)
      mix.better_without.clear();
    if (plan)
      take_plan(*plan, fleet, &mix);
    else
      mix.why_not = why_without(*freely, fleet, mix.better_without);
    return Unit{};
  }

  const std::vector<Mix>& mixes() const { return mixes_; }
  /// What the quickest plan of the first set uses.
  const TypeSet& quickest() const { return quickest_; }
  const std::optional<Error>& error() const { return error_; }

 private:
  const PlanRequest& request_;
  const FleetSpec& fleet_;
  const SearchPlan& search_;
  std::vector<Mix> mixes_;
  TypeSet quickest_;
  std::optional<Error> error_;
};

bool comes_first(const Mix& a, const Mix& b) {
  const auto rank = [](const Mix& mix) {
    return std::tuple(!mix.has_plan(), mix.step_seconds, mix.devices_used(), mix.types.size());
  };
  return rank(a) < rank(b);
}

/// Of those as quick as the first, the one with the fewest devices.
size_t choose(const std::vector<Mix>& mixes) {
  size_t chosen = mixes.size();
  const Mix* quickest = nullptr;
  for (size_t i = 0; i < mixes.size(); ++i) {
    const Mix& mix = mixes[i];
    if (!mix.has_plan() || !mix.better_without.empty()) continue;
    if (quickest == nullptr) quickest = &mix, chosen = i;
    if (!as_quick(*quickest, mix)) continue;
    const auto effort = [](const Mix& of) { return std::pair(of.devices_used(), of.types.size()); };
    if (effort(mix) < effort(mixes[chosen])) chosen = i;
  }
  return quickest == nullptr && mixes.front().has_plan() ? 0 : chosen;
}

Advice advice_of(const Worth& worth) {
  const size_t used = worth.best().types.size();
  if (worth.types.size() == 1) return Advice::kNothingToMix;
  if (used == worth.types.size()) return Advice::kMixAll;
  return used == 1 ? Advice::kOneType : Advice::kLeaveOut;
}

}  // namespace

int Mix::devices_used() const {
  return std::accumulate(types.begin(), types.end(), 0,
                         [](int sum, const TypeShare& share) { return sum + share.used; });
}

std::optional<double> Mix::cost_per_million_samples() const {
  if (!cost_per_hour || samples_per_second <= 0) return std::nullopt;
  constexpr double kSecondsOfAnHour = 3600, kMillion = 1e6;
  return *cost_per_hour / (samples_per_second * kSecondsOfAnHour) * kMillion;
}

std::vector<std::string> Mix::names() const {
  std::vector<std::string> names;
  for (const TypeShare& share : types) names.push_back(share.type);
  return names;
}

std::vector<std::string> Worth::left_out() const {
  std::vector<std::string> left = types;
  const std::vector<std::string> used = best().names();
  std::erase_if(left, [&](const std::string& type) { return is_among(used, type); });
  return left;
}

double indifference(const Mix& one, const Mix& other) {
  return std::clamp(std::max(one.uncertainty, other.uncertainty), kRoundingOfSteps,
                    kMostIndifference);
}

bool as_quick(const Mix& one, const Mix& other) {
  const auto [least, most] = std::minmax(one.step_seconds, other.step_seconds);
  return most <= least * (1 + indifference(one, other));
}

Result<Worth> compare_mixes(const PlanRequest& request, const SearchPlan& search) {
  MOTLEY_TRY(const FleetSpec fleet, admitted(request.fleet, request.job));
  Worth worth;
  worth.types = types_of(fleet);
  worth.every_set = worth.types.size() <= size_t{kMostTypesForEverySet};
  Comparison comparison(request, fleet, search);
  const auto sets = sets_of_types(worth.types);
  for (const TypeSet& types : sets) MOTLEY_TRY_VOID(comparison.add(types));
  const TypeSet& quickest = comparison.quickest();
  if (!quickest.empty() && std::find(sets.begin(), sets.end(), quickest) == sets.end())
    MOTLEY_TRY_VOID(comparison.add(quickest));
  worth.mixes = comparison.mixes();
  std::stable_sort(worth.mixes.begin(), worth.mixes.end(), comes_first);
  worth.chosen = choose(worth.mixes);
  if (worth.chosen == worth.mixes.size())
    return fail(
        comparison.error().value_or(Error{ErrorCode::kNoPlan, worth.mixes.front().why_not, {}}));
  worth.advice = advice_of(worth);
  return worth;
}

}  // namespace motley
