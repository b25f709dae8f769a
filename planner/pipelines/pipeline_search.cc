#include "planner/pipelines/pipeline_search.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "planner/pipelines/even_replicas.h"
#include "planner/pipelines/packed_plan.h"
#include "planner/pipelines/pipeline_space.h"
#include "planner/pipelines/recompute_less.h"
#include "planner/pipelines/sharing_bound.h"
#include "planner/pipelines/sharing_search.h"
#include "planner/pipelines/step_bound.h"
#include "planner/pipelines/tensor_sets.h"

namespace motley {
namespace {

constexpr size_t kFewOrdersOfASet = 24;
constexpr int64_t kNodesToProve = 2'000;
/// Of few devices.
constexpr int64_t kNodesToProveFew = 500;
/// How much less ranks hold at most each time, and how often; of few devices, and of very many
/// sets.
constexpr double kHoldLess = 0.8;
constexpr int kMostHoldings = 6;
constexpr int kFewHoldings = 2;
constexpr int kFewHoldingsOfMany = 1;
/// Of many devices: numbers of replicas that are looked for one by one.
constexpr size_t kMostNumbers = 2;
/// Of a step: what exchanging gradients takes where fewer replicas are looked for, too.
constexpr double kMuchExchanged = 0.25;
/// Of the bound: steps that are further off are worth that.
constexpr double kWorthTryingFewer = 1.1;
/// The same of few devices, for replicas that are all alike.
constexpr double kWorthTryingEvenly = 1.03;
/// By host, of so many groups of like devices.
constexpr size_t kMostHostsEvenly = 8;
/// Of the quickest plan's step: others are passed on, so many, of no more devices.
constexpr double kHardlyLonger = 1.05;
constexpr size_t kMostNear = 2;
constexpr int kMostDevicesNear = 64;

class PipelineSearch {
 public:
  PipelineSearch(const PlanRequest& request, const MemoryCounter& counter,
                 std::vector<DeviceGroup> groups, Recompute recompute)
      : space_(request, std::move(groups)),
        counter_(counter),
        maker_(space_, counter.plan),
        recompute_(recompute) {}

  Result<FoundPipelines> run() {
    if (wanted().pipeline.value_or(1) > space_.most_of_a_replica() &&
        space_.most_of_a_replica() < space_.devices())
      return fail(ErrorCode::kNoPlan,
                  "parallel.pipeline asks for " + std::to_string(*wanted().pipeline) +
                      " stages; over so many unlike devices pipelines are looked for up to " +
                      std::to_string(space_.most_of_a_replica()) +
                      " (more can be pinned: pin.replicas)",
                  place_of(space_.request.job, "parallel.pipeline"));
    if (wanted().data.value_or(1) > space_.most_replicas()) return fail(space_.none_fits());
    MOTLEY_TRY(const PipelineCosts costs, costs_of_groups(space_));
    if (recompute_ != Recompute::kNone && !costs.any_computes_again())
      return fail(space_.none_fits());  // but what search_pipelines() looks for
    MOTLEY_TRY(const LeastSeconds least, least_seconds_of_pipelines(space_.request));
    least_step_ = least.step;
    least_ = costs.least_seconds(space_.there, space_.batch());
    std::optional<Plan> best;
    if (space_.all_shared()) {
      proved_ = kNever;  // there is none
    } else {
      MOTLEY_TRY(best, quickest_of_single(costs));
    }
    if (best) MOTLEY_TRY_VOID(try_even_replicas(costs, &*best));
    MOTLEY_TRY(best, or_sharing(costs, std::move(best)));
    if (!best) return fail(space_.none_fits());
    record(may_share(costs), &*best);
    MOTLEY_TRY_VOID(validate(*best, space_.request.job.model));
    return FoundPipelines{std::move(*best), replicas_of_single_, near_plans(*best)};
  }

  /// The quickest but `best`, with what was searched for that.
  std::vector<Plan> near_plans(const Plan& best) {
    const auto step = [](const Plan& plan) { return plan.prediction.step_seconds; };
    std::vector<Plan> near;
    std::stable_sort(tried_.begin(), tried_.end(),
                     [&](const Plan& a, const Plan& b) { return step(a) < step(b); });
    for (Plan& plan : tried_) {
      if (near.size() == kMostNear || step(plan) > kHardlyLonger * step(best)) break;
      plan.search = best.search;
      plan.search.step_seconds = step(plan);
      plan.id = plan_id(plan);
      const auto is_it = [&](const Plan& other) { return other.id == plan.id; };
      if (!is_it(best) && std::none_of(near.begin(), near.end(), is_it))
        near.push_back(std::move(plan));
    }
    return near;
  }

  /// As prove_pipelines().
  Result<double> prove(double step) {
    MOTLEY_TRY(const PipelineCosts costs, costs_of_groups(space_));
    MOTLEY_TRY(const LeastSeconds least, least_seconds_of_pipelines(space_.request));
    least_ = least.computing;
    double single = step;  // at least, and no more than matters
    if (!space_.all_shared()) {
      find_bound(costs, space_.few ? step : kNever);
      std::vector<std::pair<size_t, Pipeline>> found;
      if (space_.few) bound_->tighten(step, kNodesToProveFew, &found);
      single = bound_->seconds(step);
    }
    const double sharing = may_share(costs) ? bound_of_sharing(space_, costs, single) : single;
    return std::max(least.step, std::min(single, sharing));
  }

 private:
  /// Where blocks may compute again layers are taken for less at once: of a stage that is counted
  /// not to fit one block more does.
  Result<PipelineCosts> costs_of_groups(const PipelineSpace& space) const {
    MOTLEY_TRY(PipelineCosts costs,
               PipelineCosts::make(space.request, space.groups, space.micro_batches,
                                   counter_.layers, recompute_));
    if (!space.few) costs.take_quickest_ways();  // replicas are placed on hosts
    if (recompute_ != Recompute::kNone) costs.scale_layers(kLessThanLayers);
    return costs;
  }

  /// With a device a stage.
  Result<std::optional<Plan>> quickest_of_single(const PipelineCosts& costs) {
    MOTLEY_TRY(std::optional<Plan> best, quickest_of_holdings(costs));
    if (best) return best;
    const double proved = proved_;
    const bool exact = exact_;
    if (recompute_ == Recompute::kNone) {
      PipelineCosts less = costs;
      less.scale_layers(kLessThanLayers);
      exact_ = false;
      MOTLEY_TRY(best, quickest_of_holdings(std::move(less)));
      if (best) return best;
    }
    proved_ = proved;
    exact_ = exact;
    design_all(costs);
    return best;
  }

  /// From the beginning, whether or not they are enough for a plan.
  void design_all(const PipelineCosts& costs) {
    costs_ = costs;
    designs_.clear();
    design_sets();
    best_designs_ = designs_;
  }

  /// Where the bound leaves room; of many devices by host, too, as types say nothing of who is well
  /// linked.
  Result<Unit> try_even_replicas(const PipelineCosts& costs, Plan* best) {
    const bool is_near = !space_.few && space_.request.held_by != nullptr;  // what is known
    if (is_near || space_.devices() > kMostDevicesNear) return Unit{};
    MOTLEY_TRY_VOID(try_even_replicas(space_, costs, best));
    if (space_.few) return Unit{};
    MOTLEY_TRY(std::vector<DeviceGroup> groups, group_devices(space_.request, GroupBy::kHost));
    if (groups.size() > kMostHostsEvenly || groups.size() == space_.groups.size()) return Unit{};
    const PipelineSpace by_host(space_.request, std::move(groups));
    MOTLEY_TRY(const PipelineCosts own, costs_of_groups(by_host));
    return try_even_replicas(by_host, own, best);
  }

  Result<Unit> try_even_replicas(const PipelineSpace& space, const PipelineCosts& costs,
                                 Plan* best) {
    const double step = std::min(best->prediction.step_seconds, space_.request.below);
    if (step < proved_ * (space_.few ? kWorthTryingEvenly : kWorthTryingFewer)) return Unit{};
    MOTLEY_TRY(std::vector<Plan> even,
               search_even_replicas(space, counter_.plan, costs, step, &nodes_));
    if (even.empty()) return Unit{};
    for (Plan& plan : even) {
      beyond_ = beyond_ || !is_of_lattice(plan);
      tried_.push_back(std::move(plan));
    }
    tried_.push_back(std::exchange(*best, tried_[tried_.size() - even.size()]));
    return Unit{};
  }

  /// Whether bounds are of its replicas' sets of devices, too.
  bool is_of_lattice(const Plan& plan) const {
    std::map<std::string, size_t> groups;
    for (size_t group = 0; group < space_.groups.size(); ++group)
      for (const DeviceSpec* device : space_.groups[group].devices) groups[device->id] = group;
    return std::all_of(plan.replicas.begin(), plan.replicas.end(), [&](const ReplicaPlan& replica) {
      GroupCounts set(space_.groups.size(), 0);
      for (const StagePlan& stage : replica.stages)
        for (const Rank rank : stage.ranks)
          ++set[groups.at(plan.ranks[static_cast<size_t>(rank.value())].device)];
      return std::find(lattice_.begin(), lattice_.end(), set) != lattice_.end();
    });
  }

  /// The quicker one of it and what is found with stages that are shared.
  Result<std::optional<Plan>> or_sharing(const PipelineCosts& costs, std::optional<Plan> best) {
    const SingleStages single{.costs = costs,
                              .designs = best_designs_,
                              .seconds = best ? best->prediction.step_seconds : kNever,
                              .proved = best ? proved_ : kNever,
                              .least = least_,
                              .exact = exact_};
    SharingSearch search(space_, counter_);
    MOTLEY_TRY(SharedPlan shared, search.run(single));
    proved_ = std::min(proved_, shared.least);
    nodes_ += shared.nodes;
    if (!shared.plan) return best;
    if (shared.plan->prediction.step_seconds >= single.seconds) return best;
    if (best) replicas_of_single_ = static_cast<int>(best->replicas.size());
    return std::move(shared.plan);
  }

  /// Who holds more exchanges more: plans whose ranks hold less and less are looked for, until none
  /// can be quicker.
  Result<std::optional<Plan>> quickest_of_holdings(PipelineCosts costs) {
    std::optional<Plan> best;
    bool exact = exact_;
    proved_ = kNever;
    double step = kNever, most = 1;
    if (const Plan* const known = space_.request.held_by;
        known != nullptr && !space_.few &&
        std::ssize(known->replicas) >= space_.request.least_replicas) {
      most = most_held(costs, *known);
      costs.hold_at_most(most);
      proved_ = least_;
    }
    for (int times = 0;; ++times) {
      designs_.clear();
      const double enough = std::min(step, space_.request.below);
      find_bound(costs, space_.few ? enough : kNever);
      near_ = !space_.few || (times > 0 && !space_.is_for_all_grains(cuts_of_a_set()));
      // First, so that the cuts that designs are made of are among those that are kept.
      if (!space_.few) target_ = bound_->target_seconds(space_.most_replicas(), kNever);
      if (bound_->target_seconds(enough) >= kNobodyWaits || bound_->seconds(enough) >= enough)
        break;
      if (space_.few) target_ = bound_->target_seconds(enough);
      MOTLEY_TRY(std::optional<Plan> plan, quickest_of_all(costs));
      if (plan) most = soonest_held_;
      if (plan && !space_.few && space_.devices() <= kMostDevicesNear) tried_.push_back(*plan);
      const bool is_quicker = plan && plan->prediction.step_seconds < step;
      if (is_quicker) {
        best = std::move(*plan);
        step = best->prediction.step_seconds;
      }
      // Of few devices those that may hold whatever they like stand for all.
      if (is_quicker && (!space_.few || times == 0)) best_designs_ = designs_;
      if (times == 0) exact = exact_;
      // With what ends exchange of a single replica, of which packings know nothing.
      if (space_.few && plan) tighten(std::min(step, enough));
      if (times == most_holdings() || !plan) {
        proved_ = std::min(proved_, bound_->seconds(step));
        break;
      }
      most *= kHoldLess;
      costs.hold_at_most(most);
      proved_ = std::min(proved_, bound_->seconds_holding(most, step));
    }
    proved_ = std::min(proved_, step);
    exact_ = exact;
    if (best && !space_.few && !wanted().data && space_.request.held_by == nullptr &&
        !times_->are_many())
      MOTLEY_TRY_VOID(try_numbers(costs, &*best));
    return best;
  }

  int most_holdings() const {
    if (space_.few) return is_state_shared() ? 0 : kFewHoldings;
    return times_->are_many() ? kFewHoldingsOfMany : kMostHoldings;
  }

  /// Packed by what they compute alone, replicas are often more than their sums allow: numbers that
  /// may be quicker are looked for one after another, whose ranks hold no more than now.
  Result<Unit> try_numbers(PipelineCosts costs, Plan* best) {
    costs.hold_at_most(most_held(costs, *best));
    find_bound(costs);
    for (const StepBound::Numbers& numbers :
         bound_->likely(best->prediction.step_seconds, kMostNumbers)) {
      if (numbers.high < space_.request.least_replicas) continue;
      target_ = numbers.least;
      designs_.clear();
      costs_ = costs;
      MOTLEY_TRY_VOID(take_if_quicker(
          quickest_that_fits(std::max(numbers.low, space_.request.least_replicas), numbers.high),
          best));
    }
    costs.hold_at_most(1);  // fewer must hold more
    find_bound(costs);
    return try_fewer(costs, best);
  }

  /// Fewer replicas exchange less, a single one only what is tied: half as many and fewer, where
  /// exchanging takes much of the step, the bound leaves room and so few could compute in time.
  Result<Unit> try_fewer(const PipelineCosts& costs, Plan* best) {
    for (auto replicas = static_cast<int>(best->replicas.size()) / 2;
         replicas >= space_.request.least_replicas; replicas /= 2) {
      const Prediction& known = best->prediction;
      if (known.communication_seconds < kMuchExchanged * known.step_seconds ||
          known.step_seconds < proved_ * kWorthTryingFewer)
        break;
      target_ = bound_->target_seconds(replicas, known.step_seconds);
      if (target_ >= known.step_seconds) continue;
      designs_.clear();
      costs_ = costs;
      MOTLEY_TRY_VOID(take_if_quicker(quickest_that_fits(replicas, replicas), best));
    }
    return Unit{};
  }

  Result<Unit> take_if_quicker(Result<Plan> plan, Plan* best) {
    if (!plan && plan.error().code != ErrorCode::kNoPlan) return fail(plan.error());
    if (!plan || plan->prediction.step_seconds >= best->prediction.step_seconds) return Unit{};
    *best = std::move(*plan);
    best_designs_ = designs_;
    return Unit{};
  }

  /// Part of the model's elements.
  double most_held(const PipelineCosts& costs, const Plan& plan) const {
    double most = 0;
    for (const ReplicaPlan& replica : plan.replicas)
      for (const StagePlan& stage : replica.stages)
        most = std::max(most, costs.held({0, stage.first_layer, stage.last_layer}));
    return most;
  }

  /// What takes `enough` seconds or longer is of no interest.
  void find_bound(const PipelineCosts& costs, double enough = kNever) {
    bound_.reset();
    lattice_ = space_.sets(space_.most_stages());
    times_.emplace(costs, lattice_, space_.micro_batches, space_.few, enough);
    times_->want_stages(wanted().pipeline);
    bool cut = true;
    for (size_t set = 0; set < times_->count(); ++set)
      cut = cut && (number_of(times_->devices(set)) > 1 || times_->seconds(set, 1) == kNever);
    const LeastSums sums(space_.request, space_.groups, space_.most_stages(), cut);
    bound_.emplace(packing_of(wanted().data.value_or(1), space_.most_replicas()), &*times_, sums,
                   HostSums(space_.request, space_.groups, costs, sums, is_state_shared()), least_);
  }

  bool is_state_shared() const { return space_.request.least_replicas > 1; }
  PackingProblem packing_of(int least_replicas, int most_replicas) const {
    return space_.packing(least_replicas, most_replicas, exact_ ? kExactly : kNearly);
  }

  Result<std::optional<Plan>> quickest_of_all(const PipelineCosts& costs) {
    std::optional<Plan> best;
    for (const auto& [low, high] : space_.numbers_of_replicas()) {
      costs_ = costs;
      Result<Plan> plan = quickest_that_fits(low, high);
      if (!plan && plan.error().code != ErrorCode::kNoPlan) return fail(plan.error());
      if (plan && (!best || plan->prediction.step_seconds < best->prediction.step_seconds))
        best = std::move(*plan);
    }
    return best;
  }

  const ParallelSpec& wanted() const { return space_.wanted(); }

  ReplicaDesigns design(const GroupCounts& set, int cuts) {
    const std::vector<int> samples = space_.samples_for(*costs_, set, least_, cuts);
    const size_t orders =
        static_cast<size_t>(cuts) / (samples.size() * space_.micro_batches.size());
    const bool all = space_.is_for_all_grains(cuts);
    ReplicaDesigns designs(
        *costs_, set, space_.micro_batches, samples,
        {.most_orders = std::max<size_t>(2, all ? orders : std::min(kFewOrdersOfASet, orders / 2)),
         .most_nodes = all ? std::max(kFewNodes, kMostNodes * cuts / kMostCuts) : kFewNodes,
         .much_slower = all ? 1 : kMuchSlower,
         .most_in_vain = all ? std::numeric_limits<int>::max() : 2});
    nodes_ += designs.nodes();
    exact_ = exact_ && designs.proved() && all;
    return designs;
  }

  /// Those behind the bounds for what would be the set's share, and for everything.
  ReplicaDesigns design_near(SetTimes& times, size_t set) const {
    const GroupCounts& devices = times.devices(set);
    const GrainLimit share{target_ * (1 + kNearly), space_.grain, 0, space_.grains()};
    const int grains = std::max(1, times.grains_within(set, share));
    const std::vector<int> samples{std::min(space_.batch(), grains * space_.grain)};
    if (number_of(devices) == 1)
      return {*costs_, devices, space_.micro_batches, samples, {.most_orders = 1}};
    std::vector<Pipeline> pipelines;
    for (const int count : samples) {
      const double least = times.seconds(set, count);
      for (Pipeline& pipeline : times.pipelines(set, count, kMuchSlower * least))
        pipelines.push_back(std::move(pipeline));
    }
    return {*costs_, devices, pipelines};
  }

  int cuts_of_a_set() const { return static_cast<int>(kMostCuts / std::ssize(lattice_)); }

  /// By what the bounds rest on, or of few devices, at first, as well as is possible.
  ReplicaDesigns design(SetTimes& times, size_t set) {
    const int stages = number_of(times.devices(set));
    if (wanted().pipeline.value_or(stages) != stages || stages > space_.most_beside_others() ||
        (near_ && !times_->may_be_used(set) && stages > 1))
      return {*costs_, times.devices(set), std::vector<Pipeline>()};
    return near_ ? design_near(times, set) : design(times.devices(set), cuts_of_a_set());
  }

  /// Those that what was learnt of memory does not concern stay.
  void design_sets() {
    exact_ = exact_ && !near_;
    if (designs_.empty())
      for (size_t set = 0; set < times_->count(); ++set) designs_.push_back(design(*times_, set));
    sets_.clear();
    improved_.clear();
    std::optional<SetTimes> learnt;
    for (size_t set = 0; set < designs_.size(); ++set) {
      if (!designs_[set].possible() || designs_[set].still_fits(space_.batch())) {
        sets_.push_back(designs_[set]);
        sets_.back().forget_times();
        continue;
      }
      if (!learnt) learnt.emplace(*costs_, lattice_, space_.micro_batches, space_.few);
      sets_.push_back(design(*learnt, set));
    }
  }

  Result<Plan> quickest_that_fits(int least_replicas, int most_replicas) {
    for (int round = 0; round < PlanMaker::kMostCounts; ++round) {
      MOTLEY_TRY(PackedPlan packed, quickest_plan(least_replicas, most_replicas));
      if (packed.seconds() >= space_.request.below) return maker_.uncounted(std::move(packed));
      MOTLEY_TRY(const bool fits, maker_.count_memory(round, &*costs_, &packed));
      if (fits) return std::move(packed.plan);
      exact_ = false;
    }
    return fail(space_.none_fits());
  }

  /// What the quickest plan is made of is improved until nothing is left to.
  Result<PackedPlan> quickest_plan(int least_replicas, int most_replicas) {
    if (least_replicas > most_replicas) return fail(space_.none_fits());
    design_sets();
    MOTLEY_TRY(PackedPlan best, quickest_packing(least_replicas, most_replicas));
    for (int times = 0; !exact_ && times < kMostImprovements; ++times) {
      const bool tightened = tighten(best.seconds());
      if (!improve(best) && !tightened) break;
      const auto replicas = static_cast<int>(best.plan.replicas.size());
      MOTLEY_TRY(PackedPlan other, space_.few ? quickest_packing(replicas, replicas)
                                              : quickest_packing(least_replicas, most_replicas));
      if (other.seconds() <= best.seconds()) best = std::move(other);
    }
    return best;
  }

  /// By predict(), of the best packing for each number of replicas.
  Result<PackedPlan> quickest_packing(int least_replicas, int most_replicas) {
    const auto& count = space_.request.job.devices.count;
    const PackingProblem problem = packing_of(least_replicas, most_replicas);
    std::optional<PackedPlan> best;
    DesignedSets designed(&sets_);
    const Packings packings = best_packings(problem, designed, least_);
    if (exact_) bound_->raise(least_replicas, packings.least_of_replicas);
    for (const Packing& packing : packings.found) {
      MOTLEY_TRY(PackedPlan packed, maker_.make(packing, *costs_, &sets_));
      if (&packing == packings.found.data()) soonest_held_ = most_held(*costs_, packed.plan);
      if (count && packed.plan.world_size() < count->low) continue;
      if (!best || packed.seconds() < best->seconds()) best = std::move(packed);
    }
    if (!best) return fail(space_.none_fits());
    if (space_.few && least_replicas <= 1)
      MOTLEY_TRY_VOID(maker_.try_singles(problem, *costs_, &sets_, &*best));
    return std::move(*best);
  }

  /// What the bound rests on is designed as well as it can be.
  bool tighten(double step) {
    std::vector<std::pair<size_t, Pipeline>> found;
    if (!bound_->tighten(step, space_.few ? kNodesToProveFew : kNodesToProve, &found)) return false;
    for (auto& [set, pipeline] : found) sets_[set].take(pipeline);
    return true;
  }

  /// The designs of these sets, for the samples that they compute; false where all were already.
  bool improve(const PackedPlan& packed) {
    bool any = false;
    for (const auto& [set, samples] : packed.shares) {
      if (!improved_.emplace(set, samples).second) continue;
      any = true;
      if (!space_.few) {
        if (auto quickest = times_->prove(set, samples, kNodesToImprove))
          sets_[set].take(std::move(*quickest));
        continue;
      }
      const int64_t before = sets_[set].nodes();
      sets_[set].improve(space_.micro_batches, samples, kNodesToImprove);
      nodes_ += sets_[set].nodes() - before;
    }
    return any;
  }

  /// Whether devices of any host may share a stage.
  bool may_share(const PipelineCosts& costs) const {
    return !sharing_devices(space_, costs).of_groups.empty();
  }

  /// Of a replica, and how they are put in stages.
  std::string devices_words(bool may_share) const {
    const std::string upto = wanted().pipeline ? "" : "up to ";
    const std::string stages = upto + std::to_string(space_.most_stages());
    const int any = std::min(space_.most_of_any_replica(), space_.most_stages());
    const bool evenly = !wanted().pipeline && any < space_.most_stages();
    const std::string of = " of " + std::to_string(space_.devices()) + " devices each" +
                           (evenly ? ", or an even part of them," : ",") + " ";
    if (!may_share) return (evenly ? upto + std::to_string(any) : stages) + of + "one a stage";
    const std::string shares = " of a host with any whole heads each";
    return "up to " +
           std::to_string(evenly ? space_.most_of_any_replica() : space_.most_of_a_replica()) + of +
           "in " + stages + " stages, " +
           (space_.all_shared()
                ? std::to_string(*wanted().tensor) + " devices" + shares + " in each"
                : "one device or up to " + std::to_string(kMostSharing) + shares + " in each");
  }

  std::string sizes_words() const {
    std::string words;
    for (const int size : space_.micro_batches)
      words += (words.empty()                         ? ""
                : size == space_.micro_batches.back() ? " or "
                                                      : ", ") +
               std::to_string(size);
    return words;
  }

  void record(bool may_share, Plan* plan) const {
    SearchRecord& search = plan->search;
    search.space =
        "pipelines: " + (wanted().data ? std::to_string(*wanted().data) + " " : std::string()) +
        "replicas of " + devices_words(may_share) +
        ", in any order, any layers each that fit by the sum of what each "
        "needs, any whole grains of " +
        std::to_string(space_.grain) + ", micro-batches of " + sizes_words() +
        (recompute_ == Recompute::kNone ? "" : ", as few blocks computed again as fit") +
        (beyond_ ? "; replicas that are all alike of more unlike devices, too" : "");
    search.step_seconds = plan->prediction.step_seconds;
    // What layers need by their sum is no bound on which blocks have to compute again.
    search.lower_bound_step_seconds =
        std::min({recompute_ == Recompute::kNone && !beyond_ ? proved_ : least_step_,
                  search.step_seconds, space_.request.below});
    search.nodes = nodes_ + maker_.nodes();
    plan->id = plan_id(*plan);
  }

  const PipelineSpace space_;
  const MemoryCounter& counter_;
  PlanMaker maker_;
  Recompute recompute_;
  std::optional<PipelineCosts> costs_;
  std::vector<ReplicaDesigns> designs_;       ///< of all sets, before anything was learnt of memory
  std::vector<ReplicaDesigns> best_designs_;  ///< the same of the best plan, if there is one
  std::vector<ReplicaDesigns> sets_;          ///< those that are possible with what was
  std::set<std::pair<size_t, int>> improved_;  ///< sets, for samples
  double least_ = 0;                           ///< seconds that any plan computes
  double least_step_ = 0;                      ///< of any plan, were memory free
  std::vector<GroupCounts> lattice_;           ///< sets of devices that could be a replica
  std::optional<SetTimes> times_;              ///< before anything was learnt of memory
  std::optional<StepBound> bound_;
  double target_ = 0;    ///< seconds of the packing that is looked for, at least
  double proved_ = 0;    ///< seconds of a step that no plan is below
  bool near_ = false;    ///< designs are made of what the bounds rest on
  bool beyond_ = false;  ///< of plans, some have replicas that the bounds are not of
  bool exact_ = true;    ///< all sets were looked at in all orders and cuts
  /// By the first packing, which computes soonest, or of few devices has the fewest replicas:
  /// others hold less already, and would leave out what lies between.
  double soonest_held_ = 1;
  int64_t nodes_ = 0;
  std::vector<Plan> tried_;     ///< of many devices the quickest of each that ranks may hold
  int replicas_of_single_ = 0;  ///< of the plan that lost against one whose stages are shared
};

/// What `run` does with the search for what was asked.
template <class Run>
auto with_search(const PlanRequest& asked, const MemoryCounter& counter, Recompute recompute,
                 Run run) -> decltype(run(std::declval<PipelineSearch&>())) {
  const FleetSpec fleet = in_order(asked);
  PlanRequest request = asked_of(asked, fleet);
  request.previous = asked.previous;
  request.least_replicas = asked.least_replicas;
  request.held_by = asked.held_by;
  request.host_state = asked.host_state;
  request.below = asked.below;
  MOTLEY_TRY(std::vector<DeviceGroup> groups, group_devices(request, GroupBy::kHost));
  GroupCounts counts;
  for (const DeviceGroup& group : groups) counts.push_back(group.count());
  if (!few_enough_to_enumerate(counts)) {
    MOTLEY_TRY(groups, group_devices(request, GroupBy::kType));
  }
  PipelineSearch search(request, counter, std::move(groups), recompute);
  return run(search);
}

Result<FoundPipelines> find(const PlanRequest& request, const MemoryCounter& counter,
                            Recompute recompute) {
  return with_search(request, counter, recompute,
                     [](PipelineSearch& search) { return search.run(); });
}

}  // namespace

Result<FoundPipelines> find_pipelines(const PlanRequest& request, const MemoryCounter& counter) {
  return find(request, counter, Recompute::kNone);
}

Result<Plan> search_pipelines(const PlanRequest& request, const MemoryCounter& counter) {
  MOTLEY_TRY(FoundPipelines found, find_pipelines(request, counter));
  return std::move(found.plan);
}

Result<Plan> search_recomputing(const PlanRequest& request, const MemoryCounter& counter) {
  MOTLEY_TRY(FoundPipelines found, find(request, counter, Recompute::kBlock));
  if (found.plan.prediction.step_seconds >= request.below) return std::move(found.plan);
  MOTLEY_TRY_VOID(recompute_less(request, counter.plan, &found.plan));
  SearchRecord& search = found.plan.search;
  search.lower_bound_step_seconds = std::min(search.lower_bound_step_seconds, search.step_seconds);
  return std::move(found.plan);
}

Result<double> prove_pipelines(const PlanRequest& request, const MemoryCounter& counter,
                               Recompute recompute, double step) {
  return with_search(request, counter, recompute,
                     [&](PipelineSearch& search) { return search.prove(step); });
}

Result<LeastSeconds> least_seconds_of_pipelines(const PlanRequest& request) {
  MOTLEY_TRY(std::vector<DeviceGroup> groups, group_devices(request, GroupBy::kType));
  const PipelineSpace space(request, std::move(groups));
  MOTLEY_TRY(const PipelineCosts costs,
             PipelineCosts::make(request, space.groups, space.micro_batches, nullptr));
  const double shared = least_seconds_sharing(space, costs);
  const double single =
      space.all_shared() ? kNever : costs.least_seconds(space.there, space.batch());
  const double computing = std::min(single, shared);
  if (computing == kNever) return LeastSeconds{};
  const LeastSums sums(request, space.groups, space.longest, false);
  const HostSums hosts(request, space.groups, costs, sums, true);
  return LeastSeconds{.computing = computing, .step = hosts.step_seconds(computing, 0)};
}

Result<double> least_cost_of_pipelines(const PlanRequest& request) {
  MOTLEY_TRY(std::vector<DeviceGroup> groups, group_devices(request, GroupBy::kType));
  const PipelineSpace space(request, std::move(groups));
  MOTLEY_TRY(const PipelineCosts costs,
             PipelineCosts::make(request, space.groups, space.micro_batches, nullptr));
  std::vector<double> prices;
  for (const DeviceGroup& group : space.groups) {
    double least = kNever;
    for (const DeviceSpec* device : group.devices) least = std::min(least, device->price_per_hour);
    prices.push_back(least);
  }
  return costs.least_cost(prices, space.batch());
}

}  // namespace motley
