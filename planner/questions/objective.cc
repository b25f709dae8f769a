#include "planner/questions/objective.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/units.h"
#include "planner/pipelines/pipeline_search.h"
#include "planner/questions/device_sets.h"

namespace motley {
namespace {

constexpr size_t kMostOthersTold = 6;
/// Sets that fewer devices are tried from, where not all sets are planned.
constexpr size_t kMostDescents = 4;
/// Costs that differ by less are as good as equal.
constexpr double kAsCheap = 0.005;
bool in_time(const Bill& bill, const std::optional<double>& deadline_seconds) {
  return !deadline_seconds || bill.seconds <= *deadline_seconds;
}

Error too_late(const std::string& taken, int64_t steps, double deadline_seconds) {
  return {ErrorCode::kNoPlan,
          std::to_string(steps) + " steps take " + taken + ", longer than the deadline of " +
              format_seconds(deadline_seconds),
          {}};
}

Result<Unit> check_prices(const FleetSpec& fleet) {
  for (const DeviceSpec& device : fleet.devices)
    if (device.price_per_hour <= 0)
      return fail(
          ErrorCode::kInvalidSpec,
          device.id + " (" + device.type + ") has no price above 0: costs need one of each device",
          device.place);
  return Unit{};
}

/// The plan of one set of devices.
struct Offer {
  DeviceSets::Counts devices;  ///< that it uses
  Plan plan;
  Bill bill;
};

/// Plans sets of devices, each once.
class CheapestSearch {
 public:
  CheapestSearch(const PlanRequest& request, DeviceSets sets,
                 const std::optional<double>& deadline_seconds, const SearchPlan& search)
      : request_(request),
        sets_(std::move(sets)),
        deadline_seconds_(deadline_seconds),
        search_(search) {}

  /// Where no set has a plan, the error of the first.
  Result<Unit> run() {
    const std::vector<DeviceSets::Counts> every = sets_.every();
    is_exact_ = !every.empty();
    for (const DeviceSets::Counts& devices : is_exact_ ? every : sets_.beginnings())
      MOTLEY_TRY_VOID(plan_of(devices));
    if (offers().empty()) return fail(*first_error_);
    if (is_exact_) return Unit{};
    std::set<DeviceSets::Counts> begun;
    for (const Offer* begin : offers())
      if (begun.size() < kMostDescents && begun.insert(begin->devices).second)
        MOTLEY_TRY_VOID(descend(begin));
    return Unit{};
  }

  /// Those in time by cost, then the others by time.
  std::vector<const Offer*> offers() const {
    std::vector<const Offer*> all;
    for (const auto& [devices, offer] : planned_)
      if (offer) all.push_back(&*offer);
    std::sort(all.begin(), all.end(),
              [&](const Offer* a, const Offer* b) { return rank(*a) < rank(*b); });
    return all;
  }

  std::string space() const {
    return "; cheapest of " + std::string(is_exact_ ? "all " : "") +
           std::to_string(planned_.size()) + " sets of devices";
  }

  /// Of all steps, by what was proved of each set where all were planned. What is pinned need not
  /// be as pipelines are.
  Result<double> least_cost() const {
    const int64_t steps = request_.job.train.steps;
    double computing = 0;
    if (request_.job.pin.replicas.empty()) {
      MOTLEY_TRY(const double of_a_step, least_cost_of_pipelines(request_));
      computing = bill_of(1, of_a_step, steps).cost;
    }
    if (!is_exact_) return computing;
    double least = std::numeric_limits<double>::infinity();
    for (const Offer* offer : offers()) {
      const Bill bound = bill_of(offer->plan.search.lower_bound_step_seconds,
                                 offer->plan.prediction.cost_per_hour, steps);
      if (in_time(bound, deadline_seconds_)) least = std::min(least, bound.cost);
    }
    return std::max(least, computing);
  }

 private:
  /// Less is better: too late or not, cost of those in time, seconds.
  std::tuple<bool, double, double, DeviceSets::Counts> rank(const Offer& offer) const {
    const bool late = !in_time(offer.bill, deadline_seconds_);
    return {late, late ? 0 : offer.bill.cost, offer.bill.seconds, offer.devices};
  }

  /// Null where there is none.
  Result<const Offer*> plan_of(const DeviceSets::Counts& devices) {
    const auto [place, is_new] = planned_.try_emplace(devices);
    std::optional<Offer>& offer = place->second;
    if (is_new) {
      const FleetSpec part = sets_.fleet(devices);
      Result<Plan> plan = search_(asked_of(request_, part));
      if (!plan && !means_no_plan(plan.error())) return fail(plan.error());
      if (plan) {
        const Bill bill = bill_of(*plan, request_.job.train.steps);
        offer = Offer{sets_.used_by(*plan), *std::move(plan), bill};
      } else if (!first_error_) {
        first_error_ = plan.error();
      }
    }
    return offer ? &*offer : nullptr;
  }

  /// To fewer and fewer devices, as long as that is better; first to the cheapest of as many.
  Result<Unit> descend(const Offer* best) {
    MOTLEY_TRY(const Offer* const of_as_many, plan_of(best->devices));
    if (of_as_many != nullptr && rank(*of_as_many) < rank(*best)) best = of_as_many;
    for (bool is_better = true; is_better;) {
      is_better = false;
      for (const DeviceSets::Counts& devices : sets_.smaller(best->devices)) {
        MOTLEY_TRY(const Offer* const offer, plan_of(devices));
        if (offer == nullptr || rank(*offer) >= rank(*best)) continue;
        best = offer;
        is_better = true;
        break;
      }
    }
    return Unit{};
  }

  const PlanRequest& request_;
  const DeviceSets sets_;
  const std::optional<double>& deadline_seconds_;
  const SearchPlan& search_;
  bool is_exact_ = false;  ///< all sets were planned
  std::map<DeviceSets::Counts, std::optional<Offer>> planned_;
  std::optional<Error> first_error_;
};

/// Of those in time, the cheapest of which comes first, the quickest that costs as little; else the
/// quickest.
const Offer& best_of(const std::vector<const Offer*>& offers,
                     const std::optional<double>& deadline_seconds) {
  const Offer* best = offers.front();
  const double as_cheap = best->bill.cost * (1 + kAsCheap);
  for (const Offer* offer : offers)
    if (in_time(offer->bill, deadline_seconds) && offer->bill.cost <= as_cheap &&
        offer->bill.seconds < best->bill.seconds)
      best = offer;
  return *best;
}

std::string why_not(const Bill& other, const Bill& chosen,
                    const std::optional<double>& deadline_seconds) {
  const std::string after = "after " + format_seconds(other.seconds);
  if (!in_time(other, deadline_seconds)) return "would end " + after + ", too late";
  if (other.cost < chosen.cost) return "hardly cheaper, and would end " + after;
  return "would cost " + cost_text(other.cost) + ", not " + cost_text(chosen.cost);
}

/// What other sets would have come to, the cheapest first.
void tell_others(const DeviceSets& sets, std::vector<const Offer*> offers, const Offer& chosen,
                 const std::optional<double>& deadline_seconds, Plan* plan) {
  std::stable_sort(offers.begin(), offers.end(),
                   [](const Offer* a, const Offer* b) { return a->bill.cost < b->bill.cost; });
  std::set<std::string> told{sets.words(chosen.devices)};
  for (const Offer* other : offers) {
    const std::string devices = sets.words(other->devices);
    if (told.size() > kMostOthersTold || !told.insert(devices).second) continue;
    plan->search.rejected.push_back({devices, why_not(other->bill, chosen.bill, deadline_seconds),
                                     other->plan.prediction.step_seconds});
  }
}

/// `fleet`: of all devices those that the job admits.
void leave_out_the_rest(const PlanRequest& request, const FleetSpec& fleet, Plan* plan) {
  std::set<std::string> known, admitted;
  for (const RankPlacement& rank : plan->ranks) known.insert(rank.device);
  for (const LeftOut& left : plan->left_out) known.insert(left.device);
  for (const DeviceSpec& device : fleet.devices) admitted.insert(device.id);
  for (const DeviceSpec& device : request.fleet.devices)
    if (!known.contains(device.id))
      plan->left_out.push_back({device.id, admitted.contains(device.id)
                                               ? "cheaper without it"
                                               : why_not_admitted(device, request.job)});
}

}  // namespace

std::string cost_text(double cost) {
  char text[32];
  std::snprintf(text, sizeof text, cost < 1 ? "%.3g" : "%.2f", cost);
  return text;
}

Bill bill_of(double step_seconds, double cost_per_hour, int64_t steps) {
  constexpr double kSecondsOfAnHour = 3600;
  const double seconds = step_seconds * static_cast<double>(steps);
  return {seconds, cost_per_hour * seconds / kSecondsOfAnHour};
}

Bill bill_of(const Plan& plan, int64_t steps) {
  return bill_of(plan.prediction.step_seconds, plan.prediction.cost_per_hour, steps);
}

Result<CheapestPlan> cheapest_plan(const PlanRequest& request,
                                   std::optional<double> deadline_seconds,
                                   const SearchPlan& search) {
  MOTLEY_TRY(const FleetSpec fleet, admitted(request.fleet, request.job));
  MOTLEY_TRY_VOID(check_prices(fleet));
  MOTLEY_TRY(DeviceSets sets, DeviceSets::make(request));
  CheapestSearch cheapest(request, sets, deadline_seconds, search);
  MOTLEY_TRY_VOID(cheapest.run());
  const std::vector<const Offer*> offers = cheapest.offers();
  const Offer* const quickest = *std::min_element(
      offers.begin(), offers.end(),
      [](const Offer* a, const Offer* b) { return a->bill.seconds < b->bill.seconds; });
  const Offer& chosen = best_of(offers, deadline_seconds);
  const int64_t steps = request.job.train.steps;
  if (!in_time(chosen.bill, deadline_seconds))
    return fail(
        too_late(format_seconds(quickest->bill.seconds) + " at best", steps, *deadline_seconds));
  Plan plan = chosen.plan;
  leave_out_the_rest(request, fleet, &plan);
  plan.search.space += cheapest.space();
  MOTLEY_TRY(const double least, cheapest.least_cost());
  plan.search.cost = chosen.bill.cost;
  plan.search.lower_bound_cost = std::min(least, chosen.bill.cost);
  tell_others(sets, offers, chosen, deadline_seconds, &plan);
  plan.id = plan_id(plan);
  return CheapestPlan{std::move(plan), chosen.bill, quickest->bill};
}

Result<Unit> check_deadline(const Plan& plan, int64_t steps,
                            const std::optional<double>& deadline_seconds) {
  const Bill bill = bill_of(plan, steps);
  if (in_time(bill, deadline_seconds)) return Unit{};
  return fail(too_late(format_seconds(bill.seconds), steps, *deadline_seconds));
}

}  // namespace motley
