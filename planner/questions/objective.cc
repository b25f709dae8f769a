#include "planner/questions/objective.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "core/units.h"

namespace motley {
namespace {

constexpr size_t kMostOthersTold = 6;

/// The plan of one set of types.
struct Offer {
  std::vector<std::string> types;
  Plan plan;
  Bill bill;
};

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
      return fail(ErrorCode::kInvalidSpec,
                  device.id + " (" + device.type + ") has no price: costs need one of each device",
                  device.place);
  return Unit{};
}

Result<std::vector<Offer>> offers_of(const PlanRequest& request, const FleetSpec& fleet,
                                     const SearchPlan& search) {
  std::vector<Offer> offers;
  std::optional<Error> first;
  for (const auto& types : sets_of_types(types_of(fleet))) {
    const FleetSpec part = only_types(fleet, types);
    Result<Plan> plan = search(asked_of(request, part));
    if (!plan && !means_no_plan(plan.error())) return fail(plan.error());
    if (!plan) {
      if (!first) first = plan.error();
      continue;
    }
    const Bill bill = bill_of(*plan, request.job.train.steps);
    offers.push_back({types, *std::move(plan), bill});
  }
  if (offers.empty()) return fail(*first);
  return offers;
}

/// What the other sets would have come to, the cheapest first.
void tell_others(const std::vector<Offer>& offers, const Offer& chosen,
                 const std::optional<double>& deadline_seconds, Plan* plan) {
  std::vector<const Offer*> others;
  for (const Offer& offer : offers)
    if (&offer != &chosen) others.push_back(&offer);
  std::stable_sort(others.begin(), others.end(),
                   [](const Offer* a, const Offer* b) { return a->bill.cost < b->bill.cost; });
  others.resize(std::min(others.size(), kMostOthersTold));
  for (const Offer* other : others) {
    const std::string ends = "would end after " + format_seconds(other->bill.seconds);
    const std::string why =
        in_time(other->bill, deadline_seconds)
            ? "would cost " + cost_text(other->bill.cost) + ", not " + cost_text(chosen.bill.cost)
            : ends + ", too late";
    plan->search.rejected.push_back(
        {"types " + listed_types(other->types), why, other->plan.prediction.step_seconds});
  }
}

}  // namespace

std::string cost_text(double cost) {
  char text[32];
  std::snprintf(text, sizeof text, cost < 1 ? "%.3g" : "%.2f", cost);
  return text;
}

Bill bill_of(const Plan& plan, int64_t steps) {
  constexpr double kSecondsOfAnHour = 3600;
  const double seconds = plan.prediction.step_seconds * static_cast<double>(steps);
  return {seconds, plan.prediction.cost_per_hour * seconds / kSecondsOfAnHour};
}

Result<CheapestPlan> cheapest_plan(const PlanRequest& request,
                                   std::optional<double> deadline_seconds,
                                   const SearchPlan& search) {
  MOTLEY_TRY(const FleetSpec fleet, admitted(request.fleet, request.job));
  MOTLEY_TRY_VOID(check_prices(fleet));
  MOTLEY_TRY(const std::vector<Offer> offers, offers_of(request, fleet, search));
  const Offer* quickest = &offers.front();
  const Offer* chosen = nullptr;
  for (const Offer& offer : offers) {
    if (offer.bill.seconds < quickest->bill.seconds) quickest = &offer;
    if (!in_time(offer.bill, deadline_seconds)) continue;
    const auto rank = [](const Offer& of) { return std::pair(of.bill.cost, of.bill.seconds); };
    if (chosen == nullptr || rank(offer) < rank(*chosen)) chosen = &offer;
  }
  if (chosen == nullptr)
    return fail(too_late(format_seconds(quickest->bill.seconds) + " at best",
                         request.job.train.steps, *deadline_seconds));
  Plan plan = chosen->plan;
  for (const DeviceSpec& device : fleet.devices)
    if (std::find(chosen->types.begin(), chosen->types.end(), device.type) == chosen->types.end())
      plan.left_out.push_back({device.id, "cheaper without the " + device.type});
  plan.search.space += "; cheapest of " + std::to_string(offers.size()) + " sets of types";
  tell_others(offers, *chosen, deadline_seconds, &plan);
  plan.id = plan_id(plan);
  return CheapestPlan{std::move(plan), chosen->bill, quickest->bill};
}

Result<Unit> check_deadline(const Plan& plan, int64_t steps,
                            const std::optional<double>& deadline_seconds) {
  const Bill bill = bill_of(plan, steps);
  if (in_time(bill, deadline_seconds)) return Unit{};
  return fail(too_late(format_seconds(bill.seconds), steps, *deadline_seconds));
}

}  // namespace motley
