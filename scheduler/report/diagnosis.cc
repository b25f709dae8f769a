#include "scheduler/report/diagnosis.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "scheduler/report/straggler.h"
#include "scheduler/report/table.h"

namespace motley {
namespace {

constexpr double kWorthSaying = 0.1;  // of a step

double work_of(const RankActual& rank) { return *rank.compute_seconds + *rank.update_seconds; }

std::optional<RankTime> time_of(const RankActual& rank) {
  return rank_time(rank.compute_seconds, rank.update_seconds, rank.wait_seconds,
                   rank.input_seconds);
}

bool has_stages(const Plan& plan) {
  return std::any_of(plan.replicas.begin(), plan.replicas.end(),
                     [](const ReplicaPlan& replica) { return replica.stages.size() > 1; });
}

bool on_one_host(const Plan& plan) {
  std::set<std::string> hosts;
  for (const RankPlacement& rank : plan.ranks) hosts.insert(rank.host);
  return hosts.size() < 2;
}

double mean_work(const std::vector<RankActual>& ranks) {
  double sum = 0;
  for (const RankActual& rank : ranks) sum += work_of(rank);
  return sum / static_cast<double>(ranks.size());
}

void add_wait(double wait, const AttemptResult& told, const Plan& plan,
              std::map<Limit, double>* costs) {
  if (told.ranks.size() == 1) {  // for itself
    (*costs)[Limit::kCompute] += wait;
    return;
  }
  const double travels = std::min(wait, has_stages(plan) ? plan.prediction.communication_seconds
                                                         : told.least_wait_seconds.value_or(wait));
  (*costs)[on_one_host(plan) ? Limit::kHostLink : Limit::kNetwork] += travels;
  (*costs)[Limit::kWaiting] += wait - travels;
}

const char* what_it_is(Limit limit, bool host_memory) {
  switch (limit) {
    case Limit::kCompute:
      return "its device computes";
    case Limit::kInput:
      return "it waits for its samples";
    case Limit::kHostLink:
      return host_memory ? "what lies in its host's memory travels"
                         : "what ranks of one host exchange travels";
    case Limit::kNetwork:
      return "what hosts exchange travels";
    case Limit::kImbalance:
      return "it has more to do than the mean of all";
    case Limit::kWaiting:
      return "others are not ready yet";
  }
  return "";
}

const RankPlacement& place_of(const Diagnosis& diagnosis, const Plan& plan) {
  return plan.ranks[static_cast<size_t>(diagnosis.rank)];
}

bool in_host_memory(const RankPlacement& rank) {
  return rank.host_optimizer || rank.managed_memory;
}

constexpr const char* kLargerBatch = "a larger train.global_batch sums gradients less often";

std::string advice_for(const Diagnosis& found, const Plan& plan, bool program) {
  switch (found.limit) {
    case Limit::kCompute:
      return "as it should be; more or quicker devices, or a lower precision, would help";
    case Limit::kInput:
      return std::string("read samples from a quicker disk") +
             (program ? ", or beside computing: job.loader(data, num_workers=2)" : "");
    case Limit::kHostLink:
      return in_host_memory(place_of(found, plan))
                 ? "keep the optimizer's state on the device: a smaller share of the model there, "
                   "or a device with more memory"
                 : kLargerBatch;
    case Limit::kNetwork:
      return std::string(kLargerBatch) +
             (program ? ""
                      : "; parallel.compress sends less, parallel.sync averages only now and then");
    case Limit::kImbalance:
      return program ? "with motley_torch and train.global_batch in the job shares are planned by "
                       "what devices can do; --fresh begins anew"
                     : "let the shares be planned: a run begun anew (--fresh) is";
    case Limit::kWaiting:
      return has_stages(plan)
                 ? "more micro-batches in a step (a larger train.global_batch), or fewer stages"
                 : "ranks take unlike long from step to step: samples of unlike length, or other "
                   "work on their hosts";
  }
  return "";
}

/// Of the slowest rank's step; the longest first.
std::vector<StepCost> costs_of(const RankActual& slowest, const AttemptResult& told,
                               const Plan& plan, bool host_memory) {
  std::map<Limit, double> costs;
  costs[Limit::kInput] = slowest.input_seconds.value_or(0);
  add_wait(*slowest.wait_seconds, told, plan, &costs);
  double work = work_of(slowest);
  if (host_memory) {
    costs[Limit::kHostLink] += *slowest.update_seconds;
    work = *slowest.compute_seconds;
  }
  costs[Limit::kImbalance] =
      std::max(0.0, std::min(work, work_of(slowest) - mean_work(told.ranks)));
  costs[Limit::kCompute] += work - costs[Limit::kImbalance];
  std::vector<StepCost> sorted;
  for (const auto& [limit, seconds] : costs)
    if (seconds > 0) sorted.push_back({limit, seconds});
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const StepCost& a, const StepCost& b) { return a.seconds > b.seconds; });
  return sorted;
}

}  // namespace

const char* name_of(Limit limit) {
  constexpr const char* kNames[] = {"compute", "input",     "host link",
                                    "network", "imbalance", "waiting"};
  return kNames[static_cast<int>(limit)];
}

double Diagnosis::share() const {
  for (const StepCost& cost : costs)
    if (cost.limit == limit && step_seconds > 0) return cost.seconds / step_seconds;
  return 0;
}

Result<Diagnosis> diagnose(const AttemptResult& told, const Plan& plan) {
  const std::vector<RankActual>& ranks = told.ranks;
  const bool all_told = std::all_of(
      ranks.begin(), ranks.end(), [](const RankActual& rank) { return time_of(rank).has_value(); });
  if (ranks.empty() || !all_told || ranks.size() != plan.ranks.size())
    return fail(
        ErrorCode::kNotFound,
        "not every rank has told of an ordinary step yet (the first few are none); of programs "
        "only scripts with motley_torch do");
  const auto slowest =
      std::max_element(ranks.begin(), ranks.end(), [](const RankActual& a, const RankActual& b) {
        return time_of(a)->busy_seconds < time_of(b)->busy_seconds;
      });
  Diagnosis found;
  found.rank = static_cast<int>(slowest - ranks.begin());
  found.step_seconds = time_of(*slowest)->busy_seconds + *slowest->wait_seconds;
  found.costs = costs_of(*slowest, told, plan, in_host_memory(place_of(found, plan)));
  for (const StepCost& cost : found.costs) {
    if (cost.limit == Limit::kCompute || cost.seconds < kWorthSaying * found.step_seconds) continue;
    found.limit = cost.limit;
    break;
  }
  return found;
}

std::string diagnosis_text(const Diagnosis& diagnosis, const Plan& plan, bool program) {
  const RankPlacement& place = place_of(diagnosis, plan);
  const bool host_memory = in_host_memory(place);
  TextTable table({{"limit", Align::kLeft}, {"of a step"}, {"share"}, {"", Align::kLeft}});
  for (const StepCost& cost : diagnosis.costs)
    table.add_row({name_of(cost.limit), format_duration(cost.seconds),
                   format_percent(cost.seconds / diagnosis.step_seconds),
                   what_it_is(cost.limit, host_memory)});
  return std::string(name_of(diagnosis.limit)) + ": " + format_fixed(diagnosis.share() * 100, 0) +
         " % of a step of " + format_duration(diagnosis.step_seconds) + " on rank " +
         std::to_string(diagnosis.rank) + ", " + place.device + " (" + place.type + " on " +
         place.host + "), " + what_it_is(diagnosis.limit, host_memory) + "\n" +
         "what helps: " + advice_for(diagnosis, plan, program) + "\n\n" + table.to_string();
}

nlohmann::json to_json(const Diagnosis& diagnosis, const Plan& plan, bool program) {
  const RankPlacement& place = place_of(diagnosis, plan);
  nlohmann::json costs = nlohmann::json::array();
  for (const StepCost& cost : diagnosis.costs)
    costs.push_back({{"limit", name_of(cost.limit)}, {"seconds", cost.seconds}});
  return {{"limit", name_of(diagnosis.limit)},
          {"share", diagnosis.share()},
          {"step_seconds", diagnosis.step_seconds},
          {"rank", diagnosis.rank},
          {"device", place.device},
          {"type", place.type},
          {"host", place.host},
          {"advice", advice_for(diagnosis, plan, program)},
          {"costs", std::move(costs)}};
}

}  // namespace motley
