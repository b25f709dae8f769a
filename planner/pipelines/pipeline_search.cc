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
#include "planner/pipelines/recompute_less.h"
#include "planner/pipelines/replica_packing.h"
#include "planner/pipelines/stage_devices.h"
#include "planner/pipelines/tensor_sets.h"
#include "planner/plain/deal.h"

namespace motley {
namespace {

constexpr int kMostReplicas = 16;
/// Searches for a cut, over all sets of devices, and stages that one of few sets places.
constexpr int64_t kMostCuts = 20'000;
constexpr int64_t kMostNodes = 400'000;
constexpr int64_t kFewNodes = 60;
constexpr size_t kFewOrdersOfASet = 24;
/// Where not all sets are looked at in all ways: of designs for other numbers of samples, and of
/// cuts of sets that are used.
constexpr double kMuchSlower = 1.05;
constexpr int64_t kNodesToImprove = 2000;
constexpr int kMostImprovements = 6;
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
/// Of shared stages: ways to share that are all looked at; rows with one of a set of devices, where
/// all are to be looked at, where there is no plan yet, and where there is.
constexpr size_t kMostTensorSets = 64;
constexpr size_t kMostRows = 400;
constexpr size_t kRowsForAPlan = 16;
constexpr size_t kRowsForAQuickerPlan = 2;
/// Of a step: plans that share stages are worth that.
constexpr double kHardlyQuicker = 0.002;

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
    grain_ = grain_of(request.job);
    micro_batches_ = micro_batches_of(request, groups_, grain_);
  }

  Result<Plan> run() {
    MOTLEY_TRY(PipelineCosts costs,
               PipelineCosts::make(request_, groups_, micro_batches_, counter_.layers, recompute_));
    least_ = costs.least_seconds(there_, batch());
    if (recompute_ != Recompute::kNone) {  // a plan may do with less of it
      MOTLEY_TRY(least_, least_seconds_of_pipelines(request_));
    }
    MOTLEY_TRY(std::optional<Plan> best, quickest_with(costs));
    if (!best) {
      costs.take_layers_for_less(kLessThanLayers);
      designs_.clear();
      exact_ = false;
      MOTLEY_TRY(best, quickest_with(costs));
    }
    if (!best) return fail(none_fits());
    record(&*best);
    MOTLEY_TRY_VOID(validate(*best, request_.job.model));
    return std::move(*best);
  }

 private:
  /// First with a device a stage, then, where that could be quicker, with stages that are shared.
  Result<std::optional<Plan>> quickest_with(const PipelineCosts& costs) {
    std::optional<Plan> best;
    if (!all_shared()) {
      MOTLEY_TRY(best, quickest_of_all(costs));
    }
    MOTLEY_TRY(std::optional<Plan> shared, quickest_sharing(costs, best));
    if (shared && (!best || shared->prediction.step_seconds < best->prediction.step_seconds))
      return shared;
    return best;
  }

  bool all_shared() const { return request_.job.parallel.tensor.value_or(1) > 1; }

  Result<std::optional<Plan>> quickest_sharing(const PipelineCosts& single,
                                               const std::optional<Plan>& best) {
    const double quickest = best ? best->prediction.step_seconds : kNever;
    const TensorSets found = tensor_sets(request_, groups_, single, micro_batches_, quickest,
                                         all_designs() ? kMostTensorSets : 0);
    if (found.sets.empty()) return std::optional<Plan>();
    PipelineCosts costs = single;
    MOTLEY_TRY_VOID(costs.add_tensor_sets(found.sets, micro_batches_, counter_.layers));
    costs_ = costs;
    all_sharing_ = found.all;
    has_plan_ = best.has_value();
    if (!share_designs()) return std::optional<Plan>();
    packed_ = kNever;
    if (best && !exact_)
      limit_ = (quickest - best->prediction.communication_seconds) * (1 - kHardlyQuicker);
    return quickest_of_all(costs);
  }

  /// Whether any is new.
  bool share_designs() {
    if (all_shared() || costs_->layers() < kMostStages) add_sets();
    const auto cuts = static_cast<int>(kMostCuts / std::ssize(designs_));
    bool any = false;
    for (ReplicaDesigns& known : designs_) any = share(cuts, &known) || any;
    return any;
  }

  bool share(int cuts, ReplicaDesigns* designs) {
    std::vector<int> samples = samples_for(designs->devices(), cuts);
    const bool all = all_sharing_ && samples.size() > static_cast<size_t>(grains());
    if (has_plan_ && !all) samples.erase(samples.begin());  // whose share is not everything
    const int64_t before = designs->nodes();
    const bool found = designs->share(micro_batches_, samples, all_shared(),
                                      {.most_orders = all         ? kMostRows
                                                      : has_plan_ ? kRowsForAQuickerPlan
                                                                  : kRowsForAPlan,
                                       .most_nodes = all ? kMostNodes : kFewNodes,
                                       .much_slower = all ? 1 : kMuchSlower});
    nodes_ += designs->nodes() - before;
    exact_ = exact_ && all && designs->proved();
    return found;
  }

  /// With more devices than layers, too: none of them is designed yet.
  void add_sets() {
    for (const GroupCounts& set : sets_of(there_, kMostStages))
      if (std::none_of(designs_.begin(), designs_.end(),
                       [&](const ReplicaDesigns& known) { return known.devices() == set; }))
        designs_.emplace_back(*costs_, set, micro_batches_, std::vector<int>(),
                              DesignEffort{.one_a_stage = false});
  }

  Result<std::optional<Plan>> quickest_of_all(const PipelineCosts& costs) {
    // A single replica needs no memory for sums: what does not fit with others may fit alone.
    const int most = std::min({kMostReplicas, devices(), grains()});
    const bool few = few_enough_to_enumerate(there_);
    std::optional<Plan> best;
    for (const auto& [low, high] : {std::pair(1, few ? 1 : most), std::pair(2, few ? most : 0)}) {
      costs_ = costs;
      Result<Plan> plan = quickest_that_fits(low, high);
      if (!plan && plan.error().code != ErrorCode::kNoPlan) return fail(plan.error());
      if (plan && (!best || plan->prediction.step_seconds < best->prediction.step_seconds))
        best = std::move(*plan);
    }
    return best;
  }

  int batch() const { return request_.job.train.global_batch; }
  int grains() const { return (batch() + grain_ - 1) / grain_; }
  int missing() const { return grains() * grain_ - batch(); }
  int devices() const { return std::accumulate(there_.begin(), there_.end(), 0); }

  Error none_fits() const {
    return {ErrorCode::kNoPlan,
            "no pipeline over any of the " + std::to_string(devices()) + " devices" +
                (all_shared() ? ", " + std::to_string(*request_.job.parallel.tensor) + " a stage,"
                              : "") +
                " holds the model; more memory, more devices, a smaller model or context "
                "would help",
            {}};
  }

  bool is_all(int cuts) const {
    return grains() * static_cast<int>(micro_batches_.size()) * kFewOrders <= cuts;
  }
  bool all_designs() const {
    const auto sets = sets_of(there_, std::min(kMostStages, layer_count(request_.job.model)));
    return is_all(static_cast<int>(kMostCuts / std::ssize(sets)));
  }

  /// A set is asked for designs for any number of grains if these and the sets are few; else for
  /// all samples, for what would be its share, and what lies around.
  std::vector<int> samples_for(const GroupCounts& set, int cuts) const {
    std::vector<int> samples{batch()};
    if (is_all(cuts)) {
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
         .most_in_vain = all ? std::numeric_limits<int>::max() : 2,
         .one_a_stage = !all_shared()});
    nodes_ += designs.nodes();
    exact_ = exact_ && designs.proved() && all;
    return designs;
  }

  /// Those that what was learnt of memory does not concern stay.
  void design_sets() {
    const auto all = sets_of(there_, std::min(kMostStages, costs_->layers()));
    const auto cuts = static_cast<int>(kMostCuts / static_cast<int64_t>(all.size()));
    if (designs_.empty())
      for (const GroupCounts& set : all) designs_.push_back(design(set, cuts));
    sets_.clear();
    design_of_.clear();
    improved_.clear();
    for (ReplicaDesigns& known : designs_) {
      if (!known.possible()) continue;
      if (known.still_fits(batch())) {
        sets_.push_back(known);
        design_of_.push_back(static_cast<size_t>(&known - designs_.data()));
        continue;
      }
      ReplicaDesigns other = design(known.devices(), cuts);
      if (!costs_->tensor_sets().empty()) share(cuts, &other);
      if (!other.possible()) continue;
      sets_.push_back(std::move(other));
      design_of_.push_back(designs_.size());
    }
  }

  struct Packed {
    Plan plan;
    std::vector<std::pair<size_t, int>> shares;  ///< a set of devices, and its samples
    std::vector<Pipeline> pipelines;             ///< that the plan's replicas are
    double seconds() const { return plan.prediction.step_seconds; }
  };

  Result<Plan> quickest_that_fits(int least_replicas, int most_replicas) {
    for (int round = 0; round < kMostCounts; ++round) {
      MOTLEY_TRY(Packed packed, quickest_plan(least_replicas, most_replicas));
      MOTLEY_TRY(const bool fits, count_memory(&packed, round < kCountsToExclude));
      if (fits) return std::move(packed.plan);
      exact_ = false;
    }
    return fail(none_fits());
  }

  /// What the quickest plan is made of is improved until nothing is left to.
  Result<Packed> quickest_plan(int least_replicas, int most_replicas) {
    if (least_replicas > most_replicas) return fail(none_fits());
    design_sets();
    MOTLEY_TRY(Packed best, quickest_packing(least_replicas, most_replicas));
    for (int times = 0; !exact_ && times < kMostImprovements && improve(best); ++times) {
      const auto replicas = static_cast<int>(best.plan.replicas.size());
      MOTLEY_TRY(Packed other, quickest_packing(replicas, replicas));
      if (other.seconds() <= best.seconds()) best = std::move(other);
    }
    return best;
  }

  /// By predict(), of the best packing for each number of replicas.
  Result<Packed> quickest_packing(int least_replicas, int most_replicas) {
    const auto& wanted = request_.job.devices.count;
    const PackingProblem problem{
        .devices = there_,
        .most_devices = std::min(devices(), wanted ? wanted->high : devices()),
        .grains = grains(),
        .grain = grain_,
        .missing = missing(),
        .least_replicas = least_replicas,
        .most_replicas = most_replicas,
        .limit = limit_,
        .precision = exact_ ? kExactly : kNearly};
    std::optional<Packed> best;
    const Packings packings = best_packings(problem, sets_, least_);
    packed_ = std::min(packed_, packings.least_seconds);
    for (const Packing& packing : packings.found) {
      MOTLEY_TRY(Packed packed, plan_of(packing));
      if (wanted && packed.plan.world_size() < wanted->low) continue;
      if (!best || packed.seconds() < best->seconds()) best = std::move(packed);
    }
    if (!best) return fail(none_fits());
    return std::move(*best);
  }

  /// The designs of these sets, for the samples that they compute; false where all were already.
  bool improve(const Packed& packed) {
    bool any = false;
    for (const auto& [set, samples] : packed.shares) {
      if (!improved_.emplace(set, samples).second) continue;
      const int64_t before = sets_[set].nodes();
      sets_[set].improve(micro_batches_, samples, kNodesToImprove);
      nodes_ += sets_[set].nodes() - before;
      if (design_of_[set] < designs_.size()) designs_[design_of_[set]] = sets_[set];
      any = true;
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
    for (const size_t i : order) {
      const bool is_short = static_cast<int>(i) == deal.short_device;
      const int samples = deal.grains[i] * grain_ - (is_short ? missing() : 0);
      packed.pipelines.push_back(sets_[packing[i]].quickest(samples));
      packed.shares.emplace_back(packing[i], samples);
    }
    StageDevices devices(groups_, *costs_);
    if (!devices.take_shared(packed.pipelines)) return fail(none_fits());
    for (size_t i = 0; i < order.size(); ++i)
      add_replica(packed.pipelines[i], deal.grains[order[i]], &devices, &plan);
    for (const DeviceSpec* device : devices.left())
      plan.left_out.push_back({device->id, "no plan found with it is quicker"});
    plan.owners = even_ownership(plan, request_.job.model);
    MOTLEY_TRY_VOID(predict(request_, &plan));
    return packed;
  }

  void add_replica(const Pipeline& pipeline, int grains, StageDevices* devices, Plan* plan) {
    ReplicaPlan& replica = plan->replicas.emplace_back();
    replica.micro_batch = pipeline.micro_batch;
    replica.grains = grains;
    for (const PipelineStage& from : pipeline.stages) {
      const TensorSet* const set = costs_->tensor_set(from.group);
      const int first = set == nullptr ? from.group : set->members.front().group;
      StagePlan stage;
      stage.first_layer = from.first;
      stage.last_layer = from.last;
      stage.shares = set == nullptr ? std::vector{1.0} : set->shares(request_.job.model.heads);
      stage.precision = groups_[static_cast<size_t>(first)].precision;
      if (recompute_ != Recompute::kNone)
        for (LayerIndex layer = from.first; layer <= from.last; ++layer)
          stage.recompute.push_back(is_block(layer, request_.job.model) ? recompute_
                                                                        : Recompute::kNone);
      for (const DeviceSpec* device : devices->take(from.group)) {
        stage.ranks.emplace_back(plan->world_size());
        plan->ranks.push_back({device->id, device->host, device->type});
      }
      replica.stages.push_back(std::move(stage));
    }
  }

  /// Whether every rank's bytes fit its device; they go into the prediction. Where they do not,
  /// what layers need was taken for too little.
  Result<bool> count_memory(Packed* packed, bool exclude) {
    Plan* const plan = &packed->plan;
    PlanRequest counted = request_;
    plan->prediction = {};  // may say by tables that it does not fit
    MOTLEY_TRY(counted.counted, counter_.plan(*plan));
    MOTLEY_TRY_VOID(predict(counted, plan));
    bool fits = true;
    for (size_t r = 0; r < plan->replicas.size(); ++r)
      for (size_t s = 0; s < plan->replicas[r].stages.size(); ++s) {
        const std::vector<Rank>& ranks = plan->replicas[r].stages[s].ranks;
        for (size_t member = 0; member < ranks.size(); ++member) {
          const auto rank = static_cast<size_t>(ranks[member].value());
          const DeviceProfile& device = *request_.profile.find(plan->ranks[rank].device);
          const Bytes needs = counted.counted[rank].total;
          if (needs <= usable_memory(device, request_.memory_headroom)) continue;
          fits = false;
          learn(plan->replicas[r], packed->pipelines[r], s, static_cast<int>(member), needs,
                exclude);
        }
      }
    return fits;
  }

  /// At first only that the stage does not fit: what it needs besides its layers depends on the
  /// plan.
  void learn(const ReplicaPlan& replica, const Pipeline& pipeline, size_t s, int member,
             Bytes needs, bool exclude) {
    const auto stages = static_cast<int>(replica.stages.size());
    const int in_flight =
        most_in_flight(stages, static_cast<int>(s),
                       (replica.grains * grain_ + replica.micro_batch - 1) / replica.micro_batch);
    const PipelineStage& stage = pipeline.stages[s];
    if (exclude)
      costs_->exclude(stage, replica.micro_batch, in_flight);
    else
      costs_->correct(stage, member, replica.micro_batch, in_flight, needs);
  }

  std::string devices_a_stage() const {
    if (!may_share_stages(request_.job)) return "one a stage";
    const std::string shares = " of a host with any whole heads each";
    if (all_shared()) return std::to_string(*request_.job.parallel.tensor) + shares + " a stage";
    return "one a stage or several" + shares;
  }

  void record(Plan* plan) const {
    SearchRecord& search = plan->search;
    search.space =
        "pipelines: replicas of up to " + std::to_string(std::min(kMostStages, costs_->layers())) +
        " of " + std::to_string(devices()) + " devices each, " + devices_a_stage() +
        ", in any order, any layers each, any whole grains of " + std::to_string(grain_) +
        ", micro-batches of " + std::to_string(micro_batches_.front()) + " to " +
        std::to_string(micro_batches_.back()) +
        (recompute_ == Recompute::kNone ? "" : ", all blocks computed again, or as few as fit");
    search.step_seconds = plan->prediction.step_seconds;
    search.lower_bound_step_seconds = exact_ ? std::max(least_, packed_) : least_;
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
  std::vector<size_t> design_of_;        ///< of each, if it is one of these
  std::set<std::pair<size_t, int>> improved_;  ///< sets, for samples
  double least_ = 0;                           ///< seconds of a step, whatever the plan
  double packed_ = kNever;   ///< the same by what packings are possible, where `exact_`
  bool all_sharing_ = true;  ///< all that could be in a quicker plan are among the tensor sets
  bool has_plan_ = false;    ///< with a device a stage
  double limit_ = kNever;    ///< of packings
  bool exact_;               ///< all sets were looked at in all orders and cuts
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
