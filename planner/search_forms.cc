#include "planner/search_forms.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/units.h"
#include "planner/costs/free_memory.h"
#include "planner/costs/sums_beside.h"
#include "planner/mend_plan.h"
#include "planner/pinned/pinned_search.h"
#include "planner/pipelines/packed_plan.h"
#include "planner/pipelines/pipeline_search.h"
#include "planner/pipelines/recompute_less.h"
#include "planner/pipelines/refine_cuts.h"
#include "planner/plain/runners_up.h"
#include "planner/questions/fleet_parts.h"
#include "planner/state/state_search.h"

namespace motley {
namespace {

/// Of the step: other forms are looked for where they could save that, and taken where they do.
constexpr double kWorthLooking = 0.02;
/// Of a step: what is found may still become as much quicker, as it is refined and its state dealt
/// out, or without some of its devices.
constexpr double kMayBecome = 1.1;
/// Gaps that it is tried to prove away.
constexpr double kWorthProving = 0.01;
/// What one way more of saving memory must be able to bring, by what is found were memory free.
constexpr double kWorthAnotherWay = 0.01;
/// Where what is left out is tried host by host and device by device; where ways of saving memory
/// are looked for with all devices, too, if a plan was found without.
constexpr size_t kFewDevices = 8, kManyDevices = 64;
/// Of many devices: of more types each search without one takes long.
constexpr size_t kMostTypesOfMany = 4;

void reject(RejectedPlan rejected, Plan* plan) {
  auto& all = plan->search.rejected;
  if (std::any_of(all.begin(), all.end(), [&](const RejectedPlan& other) {
        return other.what == rejected.what && other.step_seconds == rejected.step_seconds;
      }))
    return;
  const auto place = std::find_if(all.begin(), all.end(), [&](const RejectedPlan& other) {
    return rejected.step_seconds > 0 &&
           (other.step_seconds == 0 || other.step_seconds > rejected.step_seconds);
  });
  all.insert(place, std::move(rejected));
}

void reject(std::string what, std::string why, double step_seconds, Plan* plan) {
  reject({std::move(what), std::move(why), step_seconds}, plan);
}

/// "2 replicas of 3 and 1 stages".
std::string shape_of(const Plan& plan) {
  std::string stages;
  for (size_t i = 0; i < plan.replicas.size(); ++i)
    stages += (i == 0                         ? ""
               : i + 1 < plan.replicas.size() ? ", "
                                              : " and ") +
              std::to_string(plan.replicas[i].stages.size());
  const size_t count = plan.replicas.size();
  return std::to_string(count) + (count == 1 ? " replica of " : " replicas of ") + stages +
         (stages == "1" ? " stage" : " stages");
}

/// A plan, and what it was before it was refined, where that is another.
struct FoundPlan {
  Plan plan;
  std::optional<Plan> before = {};
  int replicas_of_single = 0;  ///< as FoundPipelines has it

  const Plan& as_found() const { return before ? *before : plan; }
};

/// `plan`: each holder keeps all its state, as refine_cuts() has it. Where none may, it is only
/// what others are made of.
Result<FoundPlan> refined(const PlanRequest& request, const MemoryCounter& counter, Plan plan,
                          bool may_be_in_host = false) {
  if (request.job.parallel.shard_optimizer == ShardOptimizer::kOn ||
      plan.prediction.step_seconds >= kMayBecome * request.below)
    return FoundPlan{std::move(plan)};
  FoundPlan found{plan};
  MOTLEY_TRY_VOID(refine_cuts(request, counter.plan, &found.plan, may_be_in_host));
  if (found.plan.id != plan.id) found.before = std::move(plan);
  return found;
}

/// Of plans that take hardly longer the one that is quicker refined, if any is.
Result<Unit> refine_others(const PlanRequest& request, const MemoryCounter& counter,
                           std::vector<Plan> others, FoundPlan* found) {
  for (Plan& other : others) {
    MOTLEY_TRY(FoundPlan changed, refined(request, counter, std::move(other)));
    if (changed.plan.prediction.step_seconds < found->plan.prediction.step_seconds)
      *found = std::move(changed);
  }
  return Unit{};
}

/// A plan of whole devices was looked for among pipelines, too, of which none takes less.
void look_at_pipelines_too(const std::string& space, double least, Plan* plain) {
  SearchRecord& search = plain->search;
  search.space += "; " + space;
  search.lower_bound_step_seconds = std::min(search.lower_bound_step_seconds, least);
  plain->id = plan_id(*plain);
}

bool is_fault(const Error& error) { return error.code != ErrorCode::kNoPlan; }

/// Of a plan of whole devices and one that may be cut.
FoundPlan quicker_of(Plan plain, FoundPlan found) {
  Plan& cut = found.plan;
  const double quickest = plain.prediction.step_seconds, other = cut.prediction.step_seconds;
  const bool is_quicker = other < quickest * (1 - kWorthLooking);
  if (is_quicker) {  // whole replicas, too: what tables of memory keep out may fit as it is counted
    const int whole = plain.world_size();
    reject("data parallel over " + std::to_string(whole) +
               (whole == 1 ? " whole device" : " whole devices"),
           is_cut(cut) ? "pipelines are quicker" : "more devices hold the model than was measured",
           quickest, &cut);
    return found;
  }
  if (is_cut(cut))
    reject("pipelines: " + shape_of(cut),
           other < quickest ? "hardly quicker than whole devices" : "no quicker", other, &plain);
  look_at_pipelines_too(cut.search.space, cut.search.lower_bound_step_seconds, &plain);
  plain.search.nodes += cut.search.nodes;
  return {std::move(plain)};
}

/// As many as the plan found has, if any: for other numbers of replicas it is seldom another.
std::vector<int> sharing_replicas(const Plan* found) {
  if (found == nullptr) return kSharingReplicas;
  return {std::max(kSharingReplicas.front(), static_cast<int>(found->replicas.size()))};
}

/// Sets of devices.
using Parts = std::vector<std::set<std::string>>;

/// One device of each kind on each host; of many devices the types, whole, unless they are many.
Parts kinds_to_leave_out(const FleetSpec& fleet) {
  const bool few = fleet.devices.size() <= kFewDevices;
  std::map<std::pair<std::string, std::string>, std::set<std::string>> parts;
  for (const DeviceSpec& device : fleet.devices) {
    auto& part = parts[{device.type, few ? device.host : ""}];
    if (!few || part.empty()) part.insert(device.id);
  }
  Parts all;
  for (auto& [kind, part] : parts) all.push_back(std::move(part));
  return few || all.size() <= kMostTypesOfMany ? all : Parts{};
}

/// Of few devices whole hosts.
Parts hosts_to_leave_out(const FleetSpec& fleet) {
  std::map<std::string, std::set<std::string>> hosts;
  for (const DeviceSpec& device : fleet.devices) hosts[device.host].insert(device.id);
  Parts all;
  for (auto& [host, devices] : hosts) all.push_back(std::move(devices));
  return fleet.devices.size() > kFewDevices || all.size() < 2 ? Parts{} : all;
}

/// The same but for one.
Parts other_hosts_to_leave_out(const FleetSpec& fleet) {
  if (fleet.devices.size() > kFewDevices) return {};
  const std::vector<std::string> hosts = fleet.hosts();
  std::map<std::string, std::set<std::string>> others;
  for (const DeviceSpec& device : fleet.devices)
    for (const std::string& host : hosts)
      if (host != device.host) others[host].insert(device.id);
  Parts all;
  for (auto& [host, devices] : others) all.push_back(std::move(devices));
  return all;
}

/// So that hosts may be in the way.
bool exchanges_much(const Plan& plan) {
  return plan.prediction.communication_seconds >= kWorthLooking * plan.prediction.step_seconds;
}

/// Unless it is used or left out already.
void leave_out(const LeftOut& device, Plan* plan) {
  const auto is_it = [&](const auto& other) { return other.device == device.device; };
  if (std::none_of(plan->ranks.begin(), plan->ranks.end(), is_it) &&
      std::none_of(plan->left_out.begin(), plan->left_out.end(), is_it))
    plan->left_out.push_back(device);
}

/// Instead of `plan` one of the same ways whose search knew only some of the devices.
void take_with_fewer(Plan quicker, Plan* plan) {
  for (const LeftOut& left : plan->left_out) leave_out(left, &quicker);
  for (const RankPlacement& rank : plan->ranks)
    leave_out({rank.device, "slower with it"}, &quicker);
  SearchRecord& search = quicker.search;
  search.rejected = std::move(plan->search.rejected);
  reject("with " + std::to_string(plan->world_size()) + " devices", "quicker with fewer",
         plan->prediction.step_seconds, &quicker);
  search.nodes += plan->search.nodes;
  search.space = plan->search.space;
  search.lower_bound_step_seconds =
      std::min(search.step_seconds, plan->search.lower_bound_step_seconds);
  quicker.id = plan_id(quicker);
  *plan = std::move(quicker);
}

/// Which blocks compute again, and what hosts exchange, is settled after the devices are: as long
/// as a plan without some of them is quicker, and can be below `below`, the quickest such is taken.
Result<Unit> leave_out_while_quicker(const PlanRequest& request, const MemoryWays& ways,
                                     const MemoryCounter& counter, double below,
                                     Parts (*parts_of)(const FleetSpec&), Plan* plan) {
  const auto& count = request.job.devices.count;
  const size_t least = static_cast<size_t>(count ? std::max(1, count->low) : 1);
  // What the plan does without may be of use without others.
  MOTLEY_TRY(FleetSpec fleet, admitted(request.fleet, request.job));
  for (bool is_quicker = true; is_quicker && fleet.devices.size() > least;) {
    std::optional<Plan> quickest;
    for (const std::set<std::string>& part : parts_of(fleet)) {
      FleetSpec fewer = fleet;
      std::erase_if(fewer.devices, [&](const DeviceSpec& one) { return part.contains(one.id); });
      if (fewer.devices.size() < least) continue;
      PlanRequest without = unproved(asked_of(request, fewer));
      // Few may compute again.
      const Result<LeastSeconds> others = least_seconds_of_pipelines(without);
      if (!others && means_no_plan(others.error())) continue;  // of what the job demands
      if (!others) return fail(others.error());
      const double step =
          quickest ? quickest->prediction.step_seconds : plan->prediction.step_seconds;
      if (others->step >= std::min({below, step, request.below})) continue;
      without.below = kMayBecome * std::min({below, step, request.below});
      Result<Plan> other = search_with(ways, without, counter, sharing_replicas(plan));
      if (!other && !means_no_plan(other.error())) return fail(other.error());
      if (other && other->prediction.step_seconds < step) quickest = *std::move(other);
    }
    is_quicker = quickest.has_value();
    if (quickest) take_with_fewer(*std::move(quickest), plan);
    fleet = used_by(*plan, request.fleet);
  }
  return Unit{};
}

/// A quicker plan than `cut`, and than `plain` if there is one, without some kinds of many devices;
/// nothing where none is found.
Result<std::optional<Plan>> without_kinds(const PlanRequest& request, const MemoryCounter& counter,
                                          const Plan* plain, const Plan& cut) {
  const size_t devices = request.fleet.devices.size();
  if (devices <= kFewDevices || devices > kManyDevices || request.previous != nullptr)
    return std::nullopt;
  double below = cut.prediction.step_seconds;
  if (plain != nullptr) below = std::min(below, plain->prediction.step_seconds);
  Plan fewer = cut;
  MOTLEY_TRY_VOID(leave_out_while_quicker(request, {}, counter, below, kinds_to_leave_out, &fewer));
  return fewer.id == cut.id ? std::nullopt : std::optional(std::move(fewer));
}

/// Of plans that compute nothing twice.
Result<FoundPlan> search_whole_and_cut(const PlanRequest& request, const MemoryCounter& counter) {
  Result<Plan> plain = plan_search(request);
  // Planning again keeps the form that the search once chose, where that still fits.
  if (plain && request.previous != nullptr && !is_cut(*request.previous))
    return FoundPlan{*std::move(plain)};
  if (!plain && is_fault(plain.error())) return fail(plain.error());
  if (plain) {
    MOTLEY_TRY(const LeastSeconds least, least_seconds_of_pipelines(request));
    if (least.step >= plain->prediction.step_seconds * (1 - kWorthLooking)) {
      plain->search.rejected.push_back({"pipelines", "none could be clearly quicker"});
      look_at_pipelines_too("pipelines of any kind", least.step, &*plain);
      return FoundPlan{*std::move(plain)};
    }
  }
  PlanRequest cut_too = request;
  cut_too.below =
      request.prove ? std::numeric_limits<double>::infinity() : kMayBecome * request.below;
  Result<FoundPipelines> pipelines = find_pipelines(cut_too, counter);
  if (!pipelines && is_fault(pipelines.error())) return fail(pipelines.error());
  const ParallelSpec& wanted = request.job.parallel;
  const bool wants_cut = wanted.pipeline.value_or(1) > 1 || wanted.tensor.value_or(1) > 1;
  if (!plain && !pipelines && wants_cut) return fail(pipelines.error());  // no whole device is one
  if (!plain && !pipelines) {
    Error error = plain.error();
    error.message += "; " + pipelines.error().message;
    return fail(std::move(error));
  }
  if (!pipelines) return FoundPlan{*std::move(plain)};
  if (exchanges_much(pipelines->plan))
    MOTLEY_TRY_VOID(leave_out_while_quicker(request, {}, counter,
                                            pipelines->plan.prediction.step_seconds,
                                            hosts_to_leave_out, &pipelines->plan));
  std::vector<Plan> others = std::move(pipelines->near);
  MOTLEY_TRY(auto fewer,
             without_kinds(request, counter, plain ? &*plain : nullptr, pipelines->plan));
  if (fewer) others.push_back(*std::move(fewer));
  MOTLEY_TRY(FoundPlan cut, refined(request, counter, std::move(pipelines->plan)));
  MOTLEY_TRY_VOID(refine_others(request, counter, std::move(others), &cut));
  cut.replicas_of_single = pipelines->replicas_of_single;
  return plain ? quicker_of(*std::move(plain), std::move(cut)) : std::move(cut);
}

/// What the job and the fleet let plans do for want of memory, those of `count` ways.
std::vector<MemoryWays> ways_of(const PlanRequest& request, int count) {
  const ParallelSpec& parallel = request.job.parallel;
  const auto& devices = request.fleet.devices;
  const bool has_own_memory =
      std::any_of(devices.begin(), devices.end(),
                  [](const DeviceSpec& device) { return device.kind == DeviceKind::kCuda; });
  std::vector<MemoryWays> all;
  for (const bool host : {false, true})
    for (const bool shard : {false, true})
      for (const bool recompute : {true, false}) {
        const MemoryWays ways{recompute, {shard, host}};
        if ((recompute && !parallel.recompute) || (host && !parallel.host_optimizer)) continue;
        if (host && !has_own_memory) continue;
        if (shard && (parallel.shard_optimizer == ShardOptimizer::kOff || parallel.sync.across > 1))
          continue;
        if (!shard && parallel.shard_optimizer == ShardOptimizer::kOn) continue;
        if (ways.count() == count) all.push_back(ways);
      }
  return all;
}

/// Whether a search with these ways could find a clearly quicker plan. On more than a few devices
/// sums of gradients are taken to stay, and of updates what the ways do not touch.
Result<bool> may_help(const PlanRequest& request, const MemoryWays& ways, const Plan& plan) {
  const Prediction& found = plan.prediction;
  const bool few = request.fleet.devices.size() <= kFewDevices;
  LeastSeconds least;
  if (ways.recompute) {
    MOTLEY_TRY(least, least_seconds_of_pipelines(request));
  } else if (request.fleet.devices.size() <= kManyDevices) {
    MOTLEY_TRY(least, least_seconds_of_pipelines(request));
    const bool beside = plans_with_sums_beside(request) == PlansBeside::kAll;
    const double stays =
        (beside ? 0 : found.communication_seconds) + (ways.state.shard ? 0 : found.update_seconds);
    if (!few) least.step = std::max(least.step, least.computing + stays);
  }
  return least.step > 0 &&
         least.step < std::min(request.below, found.step_seconds * (1 - kWorthLooking));
}

bool keeps_state_in_host(const Plan& plan) {
  return std::any_of(plan.ranks.begin(), plan.ranks.end(),
                     [](const RankPlacement& rank) { return rank.host_optimizer; });
}

/// The quickest plan so far, and what lost against it.
class Best {
 public:
  Best(Result<FoundPlan> plan, int replicas_of_single)
      : plan_(std::move(plan)), replicas_of_single_(replicas_of_single) {}

  bool found() const { return plan_.has_value(); }
  const Plan& plan() const { return plan_->plan; }
  const Plan& as_found() const { return plan_->as_found(); }
  /// As FoundPipelines has it, of what was found first.
  int replicas_of_single() const { return replicas_of_single_; }
  const MemoryWays& ways() const { return ways_; }
  const MemoryWays& done() const { return done_; }
  /// No plan of these ways takes less.
  void prove(double least) {
    SearchRecord& search = plan_->plan.search;
    search.lower_bound_step_seconds = std::min(
        {search.step_seconds, rejected_, std::max(search.lower_bound_step_seconds, least)});
    plan_->plan.id = plan_id(plan_->plan);
  }
  Result<Plan> take() {
    if (!plan_) return fail(plan_.error());
    return std::move(plan_->plan);
  }
  /// What another has to be below; infinite while there is none. Where more is done for want of
  /// memory, or devices are cut that were whole, less is certain, and proved: that has to be
  /// clearly quicker.
  double seconds_for(const MemoryWays& done, bool cut = false) const {
    if (!found()) return std::numeric_limits<double>::infinity();
    const bool more = done.count() > done_.count() || (cut && !is_cut(plan()));
    return plan().prediction.step_seconds * (more ? 1 - kWorthLooking : 1);
  }

  /// Searched for with these ways, of which it may do without.
  void consider(FoundPlan other, const MemoryWays& ways) {
    const double others = other.plan.prediction.step_seconds;
    MemoryWays done = ways;
    done.recompute = done.recompute && computes_again(other.plan);
    done.state.host = done.state.host && keeps_state_in_host(other.plan);
    if (!found()) {
      plan_ = std::move(other);
    } else if (const double enough = seconds_for(done, is_cut(other.plan));
               others < enough && !equally_quick(others, enough)) {
      for (RejectedPlan& before : plan_->plan.search.rejected)
        reject(std::move(before), &other.plan);
      const auto& [what, why] = lost_against(done);
      reject(what, why, plan().prediction.step_seconds, &other.plan);
      plan_ = std::move(other);
    } else {
      const bool quicker = others < plan().prediction.step_seconds;
      const std::string words = memory_words(ways);
      const bool alike = done == done_;
      reject(alike ? "other replicas" + (words.empty() ? "" : ", " + words) : words,
             quicker ? "hardly quicker" : "no quicker", others, &plan_->plan);
      // Nor does the kept plan claim that there is none.
      rejected_ = std::min(rejected_, others);
      SearchRecord& search = plan_->plan.search;
      search.lower_bound_step_seconds = std::min(search.lower_bound_step_seconds, others);
      plan_->plan.id = plan_id(plan_->plan);
      return;
    }
    ways_ = ways;
    done_ = done;
    prove(0);  // no more than it may by what was rejected
  }

 private:
  /// What is rejected, and why.
  std::pair<std::string, std::string> lost_against(const MemoryWays& done) const {
    const std::string words = memory_words(done_);
    if (done == done_) return {"other replicas" + (words.empty() ? "" : ", " + words), "slower"};
    if (done_.count() > 0) return {words, "slower"};
    return {"nothing computed twice, all state on devices of all holders",
            memory_words(done) +
                (done.recompute ? " leave room for a quicker plan" : " makes a quicker plan")};
  }

  Result<FoundPlan> plan_;
  int replicas_of_single_;
  double rejected_ = std::numeric_limits<double>::infinity();  ///< seconds, of the quickest
  MemoryWays ways_, done_;  ///< that it was searched for with, and that it makes use of
};

/// `best` has all state on all devices, or nothing.
Result<Unit> consider_sharing_it(const PlanRequest& request, const MemoryCounter& counter,
                                 const Plan& whole, Best* best) {
  const MemoryWays ways{.state = {.shard = true}};
  const auto allowed = ways_of(request, 1);
  if (std::none_of(allowed.begin(), allowed.end(),
                   [](const MemoryWays& one) { return one.state.shard; }))
    return Unit{};
  MOTLEY_TRY(std::optional<Plan> shared,
             share_state(request, counter.plan, whole, best->seconds_for(ways)));
  if (shared) best->consider({*std::move(shared)}, ways);
  return Unit{};
}

/// Pipelines are chosen by what they compute: a device that costs more in sums of gradients than it
/// is worth is left out where the plan found leaves it out; of many devices always.
Result<Plan> search_with_fewer_too(const MemoryWays& ways, const PlanRequest& request,
                                   const MemoryCounter& counter, const Best& best) {
  const Plan* const found = best.found() ? &best.as_found() : nullptr;
  std::vector<int> sharing = sharing_replicas(found);
  // With more replicas sharing may save more than stages that devices share.
  if (const int more = best.replicas_of_single();
      more > sharing.front() && std::find(sharing.begin(), sharing.end(), more) == sharing.end())
    sharing.push_back(more);
  const bool fewer_too = best.found() && !best.plan().left_out.empty();
  Result<Plan> all = fail(ErrorCode::kNoPlan, "not looked for");
  PlanRequest near = request;
  near.held_by = found;
  near.below = kMayBecome * std::min(request.below, best.seconds_for(ways));
  if (!fewer_too || request.fleet.devices.size() <= kManyDevices)
    all = search_with(ways, near, counter, sharing);
  if (!fewer_too) return all;
  const FleetSpec fleet = used_by(best.plan(), request.fleet);
  PlanRequest fewer = unproved(asked_of(request, fleet));
  fewer.held_by = found;
  fewer.below = near.below;
  Result<Plan> other = search_with(ways, fewer, counter, sharing);
  if (!other || (all && all->prediction.step_seconds <= other->prediction.step_seconds)) return all;
  const FleetSpec fit = fitting(request.fleet, request.job);
  for (LeftOut left : best.plan().left_out) {  // the reasons are of another plan
    if (fit.find(left.device) != nullptr) left.why = kNoneQuickerWith;
    other->left_out.push_back(std::move(left));
  }
  MOTLEY_TRY(const LeastSeconds least, least_seconds_of_pipelines(request));  // with all devices
  other->search.lower_bound_step_seconds = std::min(other->search.step_seconds, least.step);
  other->id = plan_id(*other);
  return other;
}

/// Devices that cost more than they bring by what is settled after they are chosen.
Result<Unit> consider_fewer(const PlanRequest& request, const MemoryWays& ways,
                            const MemoryCounter& counter, const Best& best, Plan* plan) {
  if (request.previous != nullptr) return Unit{};
  const bool exchanges = exchanges_much(*plan), needed = !best.found();
  std::vector<Parts (*)(const FleetSpec&)> all;
  if (exchanges) all.push_back(hosts_to_leave_out);
  if (exchanges && needed) all.push_back(other_hosts_to_leave_out);
  if ((exchanges && needed) || ways.recompute) all.push_back(kinds_to_leave_out);
  for (const auto parts_of : all)
    MOTLEY_TRY_VOID(
        leave_out_while_quicker(request, ways, counter, best.seconds_for(ways), parts_of, plan));
  return Unit{};
}

bool is_part_of(const MemoryWays& some, const MemoryWays& ways) {
  return (!some.recompute || ways.recompute) && (!some.state.shard || ways.state.shard) &&
         (!some.state.host || ways.state.host);
}

/// Whether a plan was found that would be quicker were memory free.
class FreeMemory {
 public:
  FreeMemory(const PlanRequest& request, const Best& best)
      : request_(request), best_(best), counter_(free_memory(request.job.model)) {}

  Result<bool> may_help(const MemoryWays& ways) {
    std::optional<double>& step = steps_[ways.state.shard];
    if (!step) {
      const MemoryWays none{.state = {.shard = ways.state.shard}};
      Result<Plan> plan = search_with_fewer_too(none, request_, counter_, best_);
      if (!plan && is_fault(plan.error())) return fail(plan.error());
      if (plan) MOTLEY_TRY_VOID(consider_fewer(request_, none, counter_, best_, &*plan));
      if (plan && !ways.state.shard) {  // as what is found with these ways is
        MOTLEY_TRY(const FoundPlan found, refined(request_, counter_, *std::move(plan)));
        step = found.plan.prediction.step_seconds;
      } else {
        step = plan ? plan->prediction.step_seconds : std::numeric_limits<double>::infinity();
      }
    }
    return *step < best_.seconds_for(ways) &&
           std::all_of(found_.begin(), found_.end(), [&](const auto& found) {
             return !is_part_of(found.first, ways) || *step < found.second * (1 - kWorthAnotherWay);
           });
  }
  /// With these ways one was found of so many seconds: more ways have to make it quicker.
  void note(const MemoryWays& ways, double seconds) { found_.emplace_back(ways, seconds); }

 private:
  const PlanRequest& request_;
  const Best& best_;
  const MemoryCounter counter_;
  std::map<bool, std::optional<double>> steps_;  ///< with state shared or not
  std::vector<std::pair<MemoryWays, double>> found_;
};

/// Of plans that do something for want of memory those that do least of it: of many devices more
/// only where nothing was found.
Result<Unit> consider_ways(const PlanRequest& request, const MemoryCounter& counter, Best* best) {
  constexpr int kMostWays = 3;
  const size_t devices = request.fleet.devices.size();
  const bool few = devices <= kFewDevices;
  FreeMemory free(request, *best);
  for (int count = 1; count <= kMostWays; ++count) {
    const bool needed = !best->found();
    if ((count > 1 && !needed && !few) || (!needed && request.previous != nullptr)) break;
    for (const MemoryWays& ways : ways_of(request, count)) {
      if (!needed) {
        MOTLEY_TRY(bool help, may_help(request, ways, best->plan()));
        // Of many devices that takes as long to look at as the search it may spare.
        const bool only_shared = ways == MemoryWays{.state = {.shard = true}};
        if (help && (few || (devices <= kManyDevices && !only_shared))) {
          MOTLEY_TRY(help, free.may_help(ways));
        }
        if (!help) continue;
      }
      Result<Plan> other = search_with_fewer_too(ways, request, counter, *best);
      if (!other && is_fault(other.error())) return fail(other.error());
      if (!other) continue;
      MOTLEY_TRY_VOID(consider_fewer(request, ways, counter, *best, &*other));
      FoundPlan found{*std::move(other)};
      if (!ways.state.shard) {
        PlanRequest quicker = request;
        quicker.below = std::min(request.below, best->seconds_for(ways));
        MOTLEY_TRY(found, refined(quicker, counter, std::move(found.plan), ways.state.host));
      }
      free.note(ways, found.plan.prediction.step_seconds);
      best->consider(std::move(found), ways);
    }
  }
  return Unit{};
}

/// Where the job asks for shared state of two devices at least, if there are so many: one has
/// nobody to share with.
JobSpec of_devices_that_share(const PlanRequest& request) {
  JobSpec job = request.job;
  if (job.parallel.shard_optimizer != ShardOptimizer::kOn || request.fleet.devices.size() < 2)
    return job;
  CountRange count = job.devices.count.value_or(CountRange{});
  count.low = std::max(2, count.low);
  if (count.low <= count.high) job.devices.count = count;
  return job;
}

Result<Plan> search_anew(const PlanRequest& asked, const MemoryCounter& counter) {
  const JobSpec job = of_devices_that_share(asked);
  const PlanRequest request = asked_for(asked, job);
  Result<FoundPlan> whole = search_whole_and_cut(request, counter);
  if (!whole && is_fault(whole.error())) return fail(whole.error());
  const bool may_be_whole = request.job.parallel.shard_optimizer != ShardOptimizer::kOn;
  Best best(may_be_whole ? whole
                         : fail(ErrorCode::kNoPlan,
                                "no plan found whose replicas share the optimizer's state, which "
                                "the job asks for" +
                                    (whole || job.devices.count != asked.job.devices.count
                                         ? std::string()
                                         : "; " + whole.error().message)),
            whole ? whole->replicas_of_single : 0);
  if (whole) {
    MOTLEY_TRY_VOID(consider_sharing_it(request, counter, whole->as_found(), &best));
  }
  MOTLEY_TRY_VOID(consider_ways(unproved(request), counter, &best));
  if (request.prove && best.found() && best.ways().count() > 0 &&
      best.plan().search.gap() > kWorthProving) {
    MOTLEY_TRY(const double least,
               prove_with(best.ways(), request, counter, best.plan().prediction.step_seconds));
    best.prove(least);
  }
  return best.take();
}

/// From the plan that there was, where that is cut and the fleet is not small.
Result<Plan> search_or_mend(const PlanRequest& request, const MemoryCounter& counter) {
  std::optional<MendedPlan> mended;
  if (request.previous != nullptr && is_cut(*request.previous) &&
      request.fleet.devices.size() > kFewDevices) {
    MOTLEY_TRY(mended, mend_plan(request, counter));
  }
  if (mended && mended->is_enough) return std::move(mended->plan);
  Result<Plan> found = search_anew(request, counter);
  if (!mended || (!found && is_fault(found.error()))) return found;
  const double seconds = mended->plan.prediction.step_seconds;
  if (found && found->prediction.step_seconds < seconds) {
    reject("the previous plan, mended", "slower", seconds, &*found);
    return found;
  }
  if (found)
    reject("a plan searched for anew", "no quicker than the previous one, mended",
           found->prediction.step_seconds, &mended->plan);
  return std::move(mended->plan);
}

/// Sums of devices all of which could sum beside computing were searched for as if they did not.
Result<Unit> consider_sums_beside(const PlanRequest& request, const MemoryCounter& counter,
                                  Plan* plan) {
  const FleetSpec some = devices_with_sums_beside(request);
  PlanRequest beside = asked_of(request, some);
  beside.below = std::min(request.below, plan->prediction.step_seconds);
  const Result<LeastSeconds> least = least_seconds_of_pipelines(beside);
  if (!least && means_no_plan(least.error())) return Unit{};  // of what the job demands
  if (!least) return fail(least.error());
  if (least->step >= beside.below) return Unit{};
  Result<Plan> other = search_anew(beside, counter);
  if (!other) return means_no_plan(other.error()) ? Result<Unit>(Unit{}) : fail(other.error());
  const double bound =
      std::min(plan->search.lower_bound_step_seconds, other->search.lower_bound_step_seconds);
  if (other->prediction.step_seconds < plan->prediction.step_seconds)
    take_with_fewer(*std::move(other), plan);
  plan->search.lower_bound_step_seconds = std::min(bound, plan->search.step_seconds);
  plan->id = plan_id(*plan);
  return Unit{};
}

}  // namespace

Result<Plan> search_all_forms(const PlanRequest& request, const MemoryCounter& counter) {
  return request.job.pin.replicas.empty() ? search_unpinned(request, counter)
                                          : search_pinned(request, counter);
}

Result<Plan> search_unpinned(const PlanRequest& request, const MemoryCounter& counter) {
  Result<Plan> plan = search_or_mend(request, counter);
  if (plan && plans_with_sums_beside(request) == PlansBeside::kOfSome)
    MOTLEY_TRY_VOID(consider_sums_beside(request, counter, &*plan));
  return plan;
}

}  // namespace motley
