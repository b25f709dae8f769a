#include "planner/pipelines/pipeline_search.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "core/pipeline.h"
#include "planner/costs/cost_model.h"
#include "planner/pipelines/pipeline_space.h"
#include "planner/pipelines/placement.h"
#include "planner/pipelines/recompute_less.h"
#include "planner/pipelines/replica_packing.h"
#include "planner/pipelines/step_bound.h"
#include "planner/plain/deal.h"

namespace motley {
namespace {

constexpr int kMostReplicas = 16;
/// Searches for a cut, over all sets of devices, and stages that one of few sets places.
constexpr int64_t kMostCuts = 20'000;
constexpr int64_t kMostNodes = 400'000;
constexpr int64_t kFewNodes = 60;
constexpr size_t kFewOrdersOfASet = 24;
/// Where not all sets are looked at in all ways: designs of other micro-batches that are kept, and
/// of cuts of sets that are used.
constexpr double kMuchSlower = 1.05;
constexpr int64_t kNodesToImprove = 2000;
constexpr int kMostImprovements = 6;
constexpr int64_t kNodesToProve = 2'000;
/// Of many devices: how much less ranks hold at most each time, and how often.
constexpr double kHoldLess = 0.8;
constexpr int kMostHoldings = 6;
/// Of the least time in which packings compute all grains: exact, and where designs are not,
/// either.
constexpr double kExactly = 1e-6;
constexpr double kNearly = 1e-4;
constexpr int kFewOrders = 6;
/// What a stage needs of what its layers need one by one, where nothing would fit otherwise: their
/// largest buffers do not all live at once.
constexpr double kLessThanLayers = 0.95;
/// Plans whose ranks are counted before it is given up.
constexpr int kMostCounts = 48;
constexpr int kCountsToExclude = 24;

class PipelineSearch {
 public:
  PipelineSearch(const PlanRequest& request, const MemoryCounter& counter,
                 std::vector<DeviceGroup> groups, Recompute recompute)
      : request_(request),
        counter_(counter),
        groups_(std::move(groups)),
        recompute_(recompute),
        exact_(recompute == Recompute::kNone) {
    for (const DeviceGroup& group : groups_) there_.push_back(group.count());
    few_ = few_enough_to_enumerate(there_);
    grain_ = grain_of(request.job);
    micro_batches_ = micro_batches_of(request, groups_, grain_);
  }

  Result<Plan> run() {
    if (wanted().pipeline.value_or(1) > kMostStages)
      return fail(ErrorCode::kNoPlan,
                  "parallel.pipeline asks for " + std::to_string(*wanted().pipeline) +
                      " stages; pipelines are looked for up to " + std::to_string(kMostStages) +
                      " (more can be pinned: pin.replicas)");
    if (wanted().data.value_or(1) > most_replicas()) return fail(none_fits());
    MOTLEY_TRY(PipelineCosts costs,
               PipelineCosts::make(request_, groups_, micro_batches_, counter_.layers, recompute_));
    least_ = costs.least_seconds(there_, batch());
    if (!few_) costs.take_quickest_ways();  // replicas are placed on hosts
    if (recompute_ != Recompute::kNone) {   // a plan may do with less of it
      MOTLEY_TRY(least_, least_seconds_of_pipelines(request_));
    }
    MOTLEY_TRY(std::optional<Plan> best, quickest_of_holdings(costs));
    if (!best) {
      costs.take_layers_for_less(kLessThanLayers);
      exact_ = false;
      MOTLEY_TRY(best, quickest_of_holdings(costs));
    }
    if (!best) return fail(none_fits());
    record(&*best);
    MOTLEY_TRY_VOID(validate(*best, request_.job.model));
    return std::move(*best);
  }

 private:
  /// Who holds more exchanges more: of many devices, over links that are slow beside what they
  /// compute, plans whose ranks hold less and less are looked for, until none can be quicker.
  Result<std::optional<Plan>> quickest_of_holdings(PipelineCosts costs) {
    std::optional<Plan> best;
    proved_ = kNever;
    double step = kNever, most = 1;
    for (int times = 0;; ++times) {
      designs_.clear();
      find_bound(costs);
      if (bound_->target_seconds() >= kNobodyWaits || bound_->seconds(step) >= step) break;
      MOTLEY_TRY(std::optional<Plan> plan, quickest_of_all(costs));
      if (plan) most = most_held(costs, *plan);
      const bool is_quicker = plan && plan->prediction.step_seconds < step;
      if (is_quicker) best = std::move(*plan), step = best->prediction.step_seconds;
      if (few_ || times == kMostHoldings || !plan) {
        proved_ = std::min(proved_, bound_->seconds(step));
        break;
      }
      most *= kHoldLess;
      costs.hold_at_most(most);
      proved_ = std::min(proved_, bound_->seconds_holding(most, step));
    }
    proved_ = std::min(proved_, step);
    return best;
  }

  /// Part of the model's elements.
  double most_held(const PipelineCosts& costs, const Plan& plan) const {
    double most = 0;
    for (const ReplicaPlan& replica : plan.replicas)
      for (const StagePlan& stage : replica.stages)
        most = std::max(most, costs.held({0, stage.first_layer, stage.last_layer}));
    return most;
  }

  void find_bound(const PipelineCosts& costs) {
    bound_.reset();
    lattice_ = sets_of(there_, most_stages());
    times_.emplace(costs, lattice_, micro_batches_, few_);
    times_->want_stages(wanted().pipeline);
    bool cut = true;
    for (size_t set = 0; set < times_->count(); ++set)
      cut = cut && (number_of(times_->devices(set)) > 1 || times_->seconds(set, 1) == kNever);
    const LeastSums sums(request_, groups_, most_stages(), cut);
    bound_.emplace(problem_of(wanted().data.value_or(1), most_replicas()), &*times_, sums, least_);
  }

  static int number_of(const GroupCounts& set) {
    return std::accumulate(set.begin(), set.end(), 0);
  }
  int most_replicas() const {
    return std::min({wanted().data.value_or(kMostReplicas), devices(), grains()});
  }

  PackingProblem problem_of(int least_replicas, int most_replicas) const {
    const auto& count = request_.job.devices.count;
    return {.devices = there_,
            .most_devices = std::min(devices(), count ? count->high : devices()),
            .grains = grains(),
            .grain = grain_,
            .missing = missing(),
            .least_replicas = least_replicas,
            .most_replicas = most_replicas,
            .is_number_given = wanted().data.has_value(),
            .precision = exact_ ? kExactly : kNearly};
  }

  Result<std::optional<Plan>> quickest_of_all(const PipelineCosts& costs) {
    // A single replica needs no memory for sums: what does not fit with others may fit alone.
    const int most = most_replicas();
    std::vector<std::pair<int, int>> numbers{{1, few_ ? 1 : most}, {2, few_ ? most : 0}};
    if (wanted().data) numbers = {{most, most}};
    std::optional<Plan> best;
    for (const auto& [low, high] : numbers) {
      costs_ = costs;
      Result<Plan> plan = quickest_that_fits(std::max(low, request_.least_replicas), high);
      if (!plan && plan.error().code != ErrorCode::kNoPlan) return fail(plan.error());
      if (plan && (!best || plan->prediction.step_seconds < best->prediction.step_seconds))
        best = std::move(*plan);
    }
    return best;
  }

  const ParallelSpec& wanted() const { return request_.job.parallel; }
  int most_stages() const {
    return std::min(wanted().pipeline.value_or(kMostStages), layer_count(request_.job.model));
  }
  int batch() const { return request_.job.train.global_batch; }
  int grains() const { return (batch() + grain_ - 1) / grain_; }
  int missing() const { return grains() * grain_ - batch(); }
  int devices() const { return std::accumulate(there_.begin(), there_.end(), 0); }

  Error none_fits() const {
    if (!wanted().data && !wanted().pipeline)
      return {ErrorCode::kNoPlan,
              "no pipeline over any of the " + std::to_string(devices()) +
                  " devices holds the model; more memory, more devices, a smaller model or context "
                  "would help",
              {}};
    return {ErrorCode::kNoPlan,
            "no plan found of " +
                (wanted().data ? std::to_string(*wanted().data) + " replicas (parallel.data)"
                               : "replicas") +
                (wanted().pipeline
                     ? " of " + std::to_string(*wanted().pipeline) + " stages (parallel.pipeline)"
                     : "") +
                " over the " + std::to_string(devices()) + " devices that holds the model",
            {}};
  }

  /// A set is asked for designs for any number of grains if these and the sets are few; else for
  /// all samples, for what would be its share, and what lies around.
  std::vector<int> samples_for(const GroupCounts& set, int cuts) const {
    std::vector<int> samples{batch()};
    if (grains() * static_cast<int>(micro_batches_.size()) * kFewOrders <= cuts) {
      for (int grain = 1; grain <= grains(); ++grain) samples.push_back(grain * grain_);
      for (int grain = 1; missing() > 0 && grain <= grains(); ++grain)
        samples.push_back(grain * grain_ - missing());
      return samples;
    }
    const double whole = costs_->least_seconds(set, batch());
    if (whole <= 0) return samples;
    const double share = grains() * std::min(1.0, least_ / whole);
    for (const double part : {0.6, 1.2})
      samples.push_back(std::clamp(static_cast<int>(part * share), 1, grains()) * grain_);
    return samples;
  }

  ReplicaDesigns design(const GroupCounts& set, int cuts) {
    const std::vector<int> samples = samples_for(set, cuts);
    const size_t orders = static_cast<size_t>(cuts) / (samples.size() * micro_batches_.size());
    const bool all = samples.size() > static_cast<size_t>(grains());
    ReplicaDesigns designs(
        *costs_, set, micro_batches_, samples,
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
    const GrainLimit share{bound_->target_seconds() * (1 + kNearly), grain_, 0, grains()};
    const int grains = std::max(1, times.grains_within(set, share));
    const std::vector<int> samples{std::min(batch(), grains * grain_)};
    if (number_of(devices) == 1)
      return {*costs_, devices, micro_batches_, samples, {.most_orders = 1}};
    std::vector<Pipeline> pipelines;
    for (const int count : samples) {
      const double least = times.seconds(set, count);
      for (Pipeline& pipeline : times.pipelines(set, count, kMuchSlower * least))
        pipelines.push_back(std::move(pipeline));
    }
    return {*costs_, devices, pipelines};
  }

  /// Of many devices by what the bounds rest on.
  ReplicaDesigns design(SetTimes& times, size_t set) {
    const int stages = number_of(times.devices(set));
    if (wanted().pipeline.value_or(stages) != stages)
      return {*costs_, times.devices(set), std::vector<Pipeline>()};
    if (!few_) return design_near(times, set);
    return design(times.devices(set), static_cast<int>(kMostCuts / std::ssize(lattice_)));
  }

  /// Those that what was learnt of memory does not concern stay.
  void design_sets() {
    exact_ = exact_ && few_;
    if (designs_.empty())
      for (size_t set = 0; set < times_->count(); ++set) designs_.push_back(design(*times_, set));
    sets_.clear();
    improved_.clear();
    std::optional<SetTimes> learnt;
    for (size_t set = 0; set < designs_.size(); ++set) {
      if (!designs_[set].possible() || designs_[set].still_fits(batch())) {
        sets_.push_back(designs_[set]);
        continue;
      }
      if (!learnt) learnt.emplace(*costs_, lattice_, micro_batches_, few_);
      sets_.push_back(design(*learnt, set));
    }
  }

  Result<Plan> quickest_that_fits(int least_replicas, int most_replicas) {
    for (int round = 0; round < kMostCounts; ++round) {
      MOTLEY_TRY(Plan plan, quickest_plan(least_replicas, most_replicas));
      MOTLEY_TRY(const bool fits, count_memory(&plan, round < kCountsToExclude));
      if (fits) return plan;
      exact_ = false;
    }
    return fail(none_fits());
  }

  /// What the quickest plan is made of is improved until nothing is left to.
  Result<Plan> quickest_plan(int least_replicas, int most_replicas) {
    if (least_replicas > most_replicas) return fail(none_fits());
    design_sets();
    MOTLEY_TRY(Packed best, quickest_packing(least_replicas, most_replicas));
    for (int times = 0; !exact_ && times < kMostImprovements; ++times) {
      const bool tightened = !few_ && tighten(best.seconds());
      if (!improve(best) && !tightened) break;
      const auto replicas = static_cast<int>(best.plan.replicas.size());
      MOTLEY_TRY(Packed other, quickest_packing(replicas, replicas));
      if (other.seconds() <= best.seconds()) best = std::move(other);
    }
    return std::move(best.plan);
  }

  struct Packed {
    Plan plan;
    std::vector<std::pair<size_t, int>> shares;  ///< a set of devices, and its samples
    double seconds() const { return plan.prediction.step_seconds; }
  };

  /// By predict(), of the best packing for each number of replicas.
  Result<Packed> quickest_packing(int least_replicas, int most_replicas) {
    const auto& count = request_.job.devices.count;
    const PackingProblem problem = problem_of(least_replicas, most_replicas);
    std::optional<Packed> best;
    DesignedSets designed(&sets_);
    const Packings packings = best_packings(problem, designed, least_);
    if (exact_) bound_->raise(least_replicas, packings.least_of_replicas);
    for (const Packing& packing : packings.found) {
      MOTLEY_TRY(Packed packed, plan_of(packing));
      if (count && packed.plan.world_size() < count->low) continue;
      if (!best || packed.seconds() < best->seconds()) best = std::move(packed);
    }
    if (!best) return fail(none_fits());
    return std::move(*best);
  }

  /// What the bound rests on is designed as well as it can be.
  bool tighten(double step) {
    std::vector<std::pair<size_t, Pipeline>> found;
    if (!bound_->tighten(step, kNodesToProve, &found)) return false;
    for (auto& [set, pipeline] : found) sets_[set].take(pipeline);
    return true;
  }

  /// The designs of these sets, for the samples that they compute; false where all were already.
  bool improve(const Packed& packed) {
    bool any = false;
    for (const auto& [set, samples] : packed.shares) {
      if (!improved_.emplace(set, samples).second) continue;
      any = true;
      if (!few_) {
        if (auto quickest = times_->prove(set, samples, kNodesToImprove))
          sets_[set].take(std::move(*quickest));
        continue;
      }
      const int64_t before = sets_[set].nodes();
      sets_[set].improve(micro_batches_, samples, kNodesToImprove);
      nodes_ += sets_[set].nodes() - before;
    }
    return any;
  }

  /// Far more than an even share nobody gets.
  GrainTable table_of(size_t set, size_t replicas) {
    std::vector<double> full{kNever}, shorted{kNever};
    const int most = 8 + 8 * grains() / static_cast<int>(replicas);
    for (int grain = 1; grain <= grains(); ++grain) {
      if (grain > most) {
        full.push_back(kNever);
        if (missing() > 0) shorted.push_back(kNever);
        continue;
      }
      full.push_back(sets_[set].seconds(grain * grain_));
      if (missing() > 0) shorted.push_back(sets_[set].seconds(grain * grain_ - missing()));
    }
    return {GrainCurve(std::move(full)),
            missing() > 0 ? GrainCurve(std::move(shorted)) : GrainCurve()};
  }

  /// Its grains are dealt so that the last replica is done soonest.
  Deal deal_over(const Packing& packing) {
    std::map<size_t, GrainTable> tables;  // of each set
    DealProblem problem;
    for (const size_t set : packing) {
      if (!tables.contains(set)) tables.emplace(set, table_of(set, packing.size()));
      problem.devices.push_back(&tables.at(set));
    }
    problem.grains = grains();
    problem.has_short = missing() > 0;
    problem.reduction.assign(packing.size() + 1, 0);
    problem.least_devices = problem.most_devices = static_cast<int>(packing.size());
    const std::vector<double> times = section_times(problem.devices);
    problem.section_times = &times;
    DealResult dealt = best_deal(problem);
    nodes_ += dealt.nodes;
    return std::move(dealt.deal);
  }

  Result<Packed> plan_of(const Packing& packing) {
    const Deal deal = deal_over(packing);
    if (deal.grains.empty())
      return fail(ErrorCode::kInternal, "a packing whose grains cannot be dealt");
    Packed packed;
    Plan& plan = packed.plan;
    plan.job_key = request_.profile.job_key;
    plan.numerics = request_.job.train.numerics;
    plan.global_batch = batch();
    plan.grain = grain_;
    std::vector<size_t> order;  // the replica with the short grain comes last
    for (size_t i = 0; i < packing.size(); ++i)
      if (static_cast<int>(i) != deal.short_device) order.push_back(i);
    if (deal.short_device >= 0) order.push_back(static_cast<size_t>(deal.short_device));
    std::vector<const Pipeline*> pipelines;
    for (const size_t i : order) {
      const bool is_short = static_cast<int>(i) == deal.short_device;
      const int samples = deal.grains[i] * grain_ - (is_short ? missing() : 0);
      packed.shares.emplace_back(packing[i], samples);
      pipelines.push_back(&sets_[packing[i]].quickest(samples));
    }
    const auto placed = place_on_hosts(groups_, pipelines);
    std::set<const DeviceSpec*> used;
    for (size_t i = 0; i < order.size(); ++i) {
      add_replica(*pipelines[i], placed[i], deal.grains[order[i]], &plan);
      used.insert(placed[i].begin(), placed[i].end());
    }
    for (const DeviceSpec& device : request_.fleet.devices)
      if (!unmet_demand(device, request_.job).empty())
        plan.left_out.push_back({device.id, why_not_admitted(device, request_.job)});
    for (const DeviceGroup& group : groups_)
      for (const DeviceSpec* device : group.devices)
        if (!used.contains(device))
          plan.left_out.push_back({device->id, "no plan found with it is quicker"});
    plan.owners = even_ownership(plan, request_.job.model);
    MOTLEY_TRY_VOID(predict(request_, &plan));
    return packed;
  }

  void add_replica(const Pipeline& pipeline, const std::vector<const DeviceSpec*>& devices,
                   int grains, Plan* plan) {
    ReplicaPlan& replica = plan->replicas.emplace_back();
    replica.micro_batch = pipeline.micro_batch;
    replica.grains = grains;
    for (size_t s = 0; s < pipeline.stages.size(); ++s) {
      const PipelineStage& from = pipeline.stages[s];
      const DeviceSpec& device = *devices[s];
      StagePlan stage;
      stage.first_layer = from.first;
      stage.last_layer = from.last;
      stage.ranks = {Rank(plan->world_size())};
      stage.shares = {1.0};
      stage.precision = groups_[static_cast<size_t>(from.group)].precision;
      if (recompute_ != Recompute::kNone)
        for (LayerIndex layer = from.first; layer <= from.last; ++layer)
          stage.recompute.push_back(is_block(layer, request_.job.model) ? recompute_
                                                                        : Recompute::kNone);
      replica.stages.push_back(std::move(stage));
      plan->ranks.push_back({device.id, device.host, device.type});
    }
  }

  /// Whether every rank's bytes fit its device; they go into the prediction. Where they do not,
  /// what layers need was taken for too little.
  Result<bool> count_memory(Plan* plan, bool exclude) {
    PlanRequest counted = request_;
    plan->prediction = {};  // may say by tables that it does not fit
    MOTLEY_TRY(counted.counted, counter_.plan(*plan));
    MOTLEY_TRY_VOID(predict(counted, plan));
    bool fits = true;
    for (const ReplicaPlan& replica : plan->replicas)
      for (size_t s = 0; s < replica.stages.size(); ++s) {
        const Rank rank = replica.stages[s].ranks.front();
        const std::string& device = plan->ranks[static_cast<size_t>(rank.value())].device;
        const Bytes needs = counted.counted[static_cast<size_t>(rank.value())].total;
        if (needs <= usable_memory(*request_.profile.find(device), request_.memory_headroom))
          continue;
        fits = false;
        learn(*plan, replica, s, needs, exclude);
      }
    return fits;
  }

  /// At first only that the stage does not fit: what it needs besides its layers depends on the
  /// plan.
  void learn(const Plan& plan, const ReplicaPlan& replica, size_t s, Bytes needs, bool exclude) {
    const StagePlan& stage = replica.stages[s];
    const std::string& device = plan.ranks[static_cast<size_t>(stage.ranks.front().value())].device;
    const auto stages = static_cast<int>(replica.stages.size());
    const int in_flight =
        most_in_flight(stages, static_cast<int>(s),
                       (replica.grains * grain_ + replica.micro_batch - 1) / replica.micro_batch);
    for (size_t group = 0; group < groups_.size(); ++group) {
      const auto& members = groups_[group].devices;
      if (std::none_of(members.begin(), members.end(),
                       [&](const DeviceSpec* one) { return one->id == device; }))
        continue;
      const PipelineStage own{static_cast<int>(group), stage.first_layer, stage.last_layer};
      if (exclude)
        costs_->exclude(own, replica.micro_batch, in_flight);
      else
        costs_->correct(own, replica.micro_batch, in_flight, needs);
    }
  }

  void record(Plan* plan) const {
    SearchRecord& search = plan->search;
    search.space =
        "pipelines: " + (wanted().data ? std::to_string(*wanted().data) + " " : std::string()) +
        "replicas of " + (wanted().pipeline ? "" : "up to ") + std::to_string(most_stages()) +
        " of " + std::to_string(devices()) +
        " devices each, one a stage, in any order, any layers each that fit by the sum of what "
        "each "
        "needs, any whole grains of " +
        std::to_string(grain_) + ", micro-batches of " + std::to_string(micro_batches_.front()) +
        " to " + std::to_string(micro_batches_.back()) +
        (recompute_ == Recompute::kNone ? "" : ", all blocks computed again, or as few as fit");
    search.step_seconds = plan->prediction.step_seconds;
    search.lower_bound_step_seconds =
        recompute_ == Recompute::kNone ? std::min(proved_, search.step_seconds) : least_;
    search.gap = search.step_seconds / search.lower_bound_step_seconds - 1;
    search.nodes = nodes_;
    plan->id = plan_id(*plan);
  }

  const PlanRequest& request_;
  const MemoryCounter& counter_;
  std::vector<DeviceGroup> groups_;
  GroupCounts there_;
  Recompute recompute_;  ///< of all blocks
  int grain_ = 1;
  std::vector<int> micro_batches_;
  std::optional<PipelineCosts> costs_;
  std::vector<ReplicaDesigns> designs_;  ///< of all sets, before anything was learnt of memory
  std::vector<ReplicaDesigns> sets_;     ///< those that are possible with what was
  std::set<std::pair<size_t, int>> improved_;  ///< sets, for samples
  double least_ = 0;                           ///< seconds of a step, whatever the plan
  std::vector<GroupCounts> lattice_;           ///< sets of devices that could be a replica
  std::optional<SetTimes> times_;              ///< before anything was learnt of memory
  std::optional<StepBound> bound_;
  double proved_ = 0;  ///< seconds of a step that no plan is below
  bool few_ = true;    ///< devices: all packings are looked at
  bool exact_;         ///< all sets were looked at in all orders and cuts
  int64_t nodes_ = 0;
};

Result<Plan> search_with(const PlanRequest& request, const MemoryCounter& counter,
                         Recompute recompute) {
  MOTLEY_TRY(std::vector<DeviceGroup> groups, group_devices(request, GroupBy::kHost));
  GroupCounts counts;
  for (const DeviceGroup& group : groups) counts.push_back(group.count());
  if (!few_enough_to_enumerate(counts)) {
    MOTLEY_TRY(groups, group_devices(request, GroupBy::kType));
  }
  return PipelineSearch(request, counter, std::move(groups), recompute).run();
}

}  // namespace

Result<Plan> search_pipelines(const PlanRequest& request, const MemoryCounter& counter) {
  return search_with(request, counter, Recompute::kNone);
}

Result<Plan> search_recomputing(const PlanRequest& request, const MemoryCounter& counter) {
  MOTLEY_TRY(Plan plan, search_with(request, counter, Recompute::kBlock));
  MOTLEY_TRY_VOID(recompute_less(request, counter.plan, &plan));
  return plan;
}

Result<double> least_seconds_of_pipelines(const PlanRequest& request, Recompute recompute) {
  MOTLEY_TRY(const std::vector<DeviceGroup> groups, group_devices(request, GroupBy::kType));
  GroupCounts counts;
  for (const DeviceGroup& group : groups) counts.push_back(group.count());
  const std::vector<int> sizes = micro_batches_of(request, groups, grain_of(request.job));
  MOTLEY_TRY(const PipelineCosts costs,
             PipelineCosts::make(request, groups, sizes, nullptr, recompute));
  return costs.least_seconds(counts, request.job.train.global_batch);
}

}  // namespace motley
