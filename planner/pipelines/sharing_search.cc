#include "planner/pipelines/sharing_search.h"

#include <algorithm>
#include <numeric>

#include "planner/pipelines/sharing_bound.h"
#include "planner/pipelines/tensor_sets.h"

namespace motley {
namespace {

/// Ways to share that are all looked at, of few devices.
constexpr size_t kMostTensorSets = 64;
/// Rows of a set of devices where all are to be looked at; of all sets, of each so many at least,
/// where there is no plan yet, and where there is.
constexpr size_t kMostRows = 400;
constexpr size_t kRowsForAPlan = 16;
constexpr size_t kRowsOfFew = 48;  ///< the same of few devices that hold no more by themselves
constexpr size_t kRowsForAQuickerPlan = 2;
/// Replicas that may share state.
constexpr int kFewestSharing = 2;

}  // namespace

SharingSearch::SharingSearch(const PipelineSpace& space, const MemoryCounter& counter)
    : space_(space), counter_(counter), maker_(space, counter.plan) {}

Result<SharedPlan> SharingSearch::run(const SingleStages& single) {
  cuts_ = kMostCuts / static_cast<int>(space_.sets(space_.longest).size());
  all_ = single.exact && space_.few && space_.is_for_all_grains(cuts_);
  has_plan_ = single.seconds < space_.request.below;
  limit_ = std::min(single.seconds, space_.request.below);
  const TensorSets found = tensor_sets(space_, single.costs, has_plan_ ? limit_ : kNever,
                                       space_.few ? kMostTensorSets : 0);
  SharedPlan shared{.plan = {}, .least = found.least};
  if (space_.request.prove && found.least < limit_)
    // More than is proved of the others helps nobody.
    shared.least = std::max(found.least, bound_of_sharing(space_, single.costs, single.proved));
  if (found.sets.empty() || shared.least >= limit_) return shared;
  all_ = all_ && found.all;
  least_ = std::min(single.least, found.least);
  PipelineCosts costs = single.costs;
  MOTLEY_TRY_VOID(costs.add_tensor_sets(found.sets, space_.micro_batches, counter_.layers));
  MOTLEY_TRY(shared.plan, quickest(costs, single));
  // Of more replicas than share anything, fewer were not looked at.
  const bool all_numbers = space_.request.least_replicas <= kFewestSharing;
  if (exact_ && all_numbers) shared.least = std::max(shared.least, packed_);
  if (!shared.plan && !has_plan_) {
    costs.scale_layers(kLessThanLayers);
    all_ = false;
    MOTLEY_TRY(shared.plan, quickest(std::move(costs), single));
  }
  shared.nodes = nodes_ + maker_.nodes();
  return shared;
}

Result<std::optional<Plan>> SharingSearch::quickest(PipelineCosts costs,
                                                    const SingleStages& single) {
  std::optional<Plan> best;
  exact_ = all_;
  costs_ = costs;
  if (!design_all(single) && !exact_) return best;
  for (const auto& [low, high] : space_.numbers_of_replicas()) {
    costs_ = costs;
    learnt_ = false;
    Result<Plan> plan = quickest_that_fits(low, high);
    if (!plan && plan.error().code != ErrorCode::kNoPlan) return fail(plan.error());
    if (plan && (!best || plan->prediction.step_seconds < best->prediction.step_seconds))
      best = std::move(*plan);
  }
  return best;
}

/// Whether any is new.
bool SharingSearch::design_all(const SingleStages& single) {
  designs_ = single.designs;
  for (ReplicaDesigns& known : designs_) known.price_by(*costs_);
  if (designs_.empty() || space_.most_stages() < space_.most_of_a_replica()) add_sets(&designs_);
  bool any = false;
  for (ReplicaDesigns& designs : designs_) any = share(&designs) || any;
  return any;
}

/// Of more devices than a replica with a device a stage has, too.
void SharingSearch::add_sets(std::vector<ReplicaDesigns>* designs) const {
  for (GroupCounts& set : space_.sets(space_.longest))
    if (std::none_of(designs->begin(), designs->end(),
                     [&](const ReplicaDesigns& known) { return known.devices() == set; }))
      designs->emplace_back(*costs_, std::move(set));
}

bool SharingSearch::share(ReplicaDesigns* designs) {
  const GroupCounts& devices = designs->devices();
  if (std::accumulate(devices.begin(), devices.end(), 0) > space_.most_beside_others())
    return false;
  std::vector<int> samples = space_.samples_for(*costs_, devices, least_, cuts_);
  const size_t least = space_.few && !designs->possible() ? kRowsOfFew
                       : has_plan_                        ? kRowsForAQuickerPlan
                                                          : kRowsForAPlan;
  const size_t rows = std::max(least, kMostRows / designs_.size());
  if (has_plan_ && !all_) samples.erase(samples.begin(), samples.end() - 1);  // about its share
  const int64_t before = designs->nodes();
  const bool found =
      designs->share(space_.micro_batches, samples,
                     {.only_shared = space_.all_shared(), .stages = space_.wanted().pipeline},
                     {.most_orders = all_ ? kMostRows : rows,
                      .most_nodes = all_ ? kMostNodes : kFewNodes,
                      .much_slower = all_ ? 1 : kMuchSlower});
  nodes_ += designs->nodes() - before;
  exact_ = exact_ && designs->proved();
  return found;
}

/// With what was learnt of memory.
ReplicaDesigns SharingSearch::design_anew(const GroupCounts& set) {
  int stages = 0;
  for (const int count : set) stages += count;
  ReplicaDesigns designs(*costs_, set);
  if (!space_.all_shared() && space_.wanted().pipeline.value_or(stages) == stages)
    designs = ReplicaDesigns(*costs_, set, space_.micro_batches,
                             space_.samples_for(*costs_, set, least_, cuts_),
                             {.most_nodes = kFewNodes, .much_slower = kMuchSlower});
  share(&designs);
  return designs;
}

void SharingSearch::design_sets() {
  sets_.clear();
  improved_.clear();
  for (const ReplicaDesigns& known : designs_)
    sets_.push_back(!learnt_ || !known.possible() || known.still_fits(space_.batch())
                        ? known
                        : design_anew(known.devices()));
  if (learnt_)
    for (ReplicaDesigns& designs : sets_) designs.forget_times();
}

Result<Plan> SharingSearch::quickest_that_fits(int least_replicas, int most_replicas) {
  for (int round = 0; round < PlanMaker::kMostCounts; ++round) {
    MOTLEY_TRY(PackedPlan packed, quickest_plan(least_replicas, most_replicas));
    if (packed.seconds() >= space_.request.below) return maker_.uncounted(std::move(packed));
    MOTLEY_TRY(const bool fits, maker_.count_memory(round, &*costs_, &packed));
    if (fits) return std::move(packed.plan);
    learnt_ = true;
    exact_ = false;
  }
  return fail(space_.none_fits());
}

Result<PackedPlan> SharingSearch::quickest_plan(int least_replicas, int most_replicas) {
  if (least_replicas > most_replicas) return fail(space_.none_fits());
  design_sets();
  MOTLEY_TRY(PackedPlan best, quickest_packing(least_replicas, most_replicas));
  for (int times = 0; !exact_ && times < kMostImprovements && improve(best); ++times) {
    const auto replicas = static_cast<int>(best.plan.replicas.size());
    MOTLEY_TRY(PackedPlan other, quickest_packing(replicas, replicas));
    if (other.seconds() <= best.seconds()) best = std::move(other);
  }
  return best;
}

/// By predict(), of the best packing for each number of replicas.
Result<PackedPlan> SharingSearch::quickest_packing(int least_replicas, int most_replicas) {
  const auto& count = space_.request.job.devices.count;
  PackingProblem problem =
      space_.packing(least_replicas, most_replicas, exact_ ? kExactly : kNearly);
  problem.limit = limit_;
  std::optional<PackedPlan> best;
  DesignedSets designed(&sets_);
  const Packings packings = best_packings(problem, designed, least_);
  if (exact_) packed_ = std::min(packed_, packings.least_seconds);
  for (const Packing& packing : packings.found) {
    Result<PackedPlan> packed = maker_.make(packing, *costs_, &sets_);
    if (!packed && packed.error().code != ErrorCode::kNoPlan) return packed;
    if (!packed || (count && packed->plan.world_size() < count->low)) continue;
    if (!best || packed->seconds() < best->seconds()) best = std::move(*packed);
  }
  if (!best) return fail(space_.none_fits());
  if (space_.few && least_replicas <= 1)
    MOTLEY_TRY_VOID(maker_.try_singles(problem, *costs_, &sets_, &*best));
  return std::move(*best);
}

/// The designs of its sets, for the samples that they compute; false where all were already.
bool SharingSearch::improve(const PackedPlan& packed) {
  bool any = false;
  for (const auto& [set, samples] : packed.shares) {
    if (!improved_.emplace(set, samples).second) continue;
    const int64_t before = sets_[set].nodes();
    sets_[set].improve(space_.micro_batches, samples, kNodesToImprove);
    nodes_ += sets_[set].nodes() - before;
    any = true;
  }
  return any;
}

}  // namespace motley
