#include "planner/mend_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/spec/precisions.h"
#include "planner/costs/cost_model.h"
#include "planner/costs/replica_times.h"
#include "planner/pinned/plan_parts.h"
#include "planner/pipelines/pipeline_cut.h"
#include "planner/pipelines/pipeline_search.h"
#include "planner/pipelines/pipeline_space.h"
#include "planner/plain/device_index.h"
#include "planner/state/state_placement.h"

namespace motley {
namespace {

/// A replica with its ranks counted from 0.
struct Part {
  ReplicaPlan replica;
  std::vector<RankPlacement> ranks;
  std::vector<double> updates;  ///< seconds of each, about
  std::set<size_t> lost;        ///< of the ranks
};

class Mending {
 public:
  Mending(const PlanRequest& request, const MemoryCounter& counter, bool may_cut_anew)
      : request_(request),
        counter_(counter),
        may_cut_anew_(may_cut_anew),
        previous_(*request.previous),
        there_(fitting(request.fleet, request.job)),
        index_(there_, request.profile),
        known_(request.profile.links) {}

  /// Whether what is left of a replica was to be cut anew.
  bool cut_any_anew() const { return costs_.has_value(); }

  /// Without a record.
  Result<std::optional<Plan>> run() {
    if (!is_of_use()) return std::nullopt;
    take_apart();
    for (size_t i = 0; i < broken_.size(); ++i) MOTLEY_TRY_VOID(mend(i));
    if (whole_.empty() || !deal()) return std::nullopt;
    Plan plan = put_together();
    if (!is_as_wanted(plan)) return std::nullopt;
    MOTLEY_TRY(const bool fits, finish(&plan));
    if (!fits) return std::nullopt;
    return plan;
  }

  /// With a record, of one that run() found.
  Result<MendedPlan> finished(Plan plan) const {
    MOTLEY_TRY_VOID(record(&plan));
    const bool is_enough = plan.prediction.step_seconds <= enough_seconds(plan);
    return MendedPlan{std::move(plan), is_enough};
  }

 private:
  bool is_there(const std::string& device) const { return index_.spec(device) != nullptr; }
  const DeviceProfile& profile_of(const RankPlacement& rank) const {
    return *index_.profile(rank.device);
  }

  Precision precision_of(const RankPlacement& rank) const {
    return precision_allowed(request_.job, *index_.spec(rank.device), profile_of(rank).precision);
  }
  static const StagePlan& stage_of_rank(const ReplicaPlan& replica, size_t rank) {
    const StagePlan* stage = replica.stages.data();
    for (size_t before = stage->ranks.size(); before <= rank; before += stage->ranks.size())
      ++stage;
    return *stage;
  }

  bool is_of_use() const {
    const TrainSpec& train = request_.job.train;
    if (previous_.job_key != request_.profile.job_key ||
        previous_.global_batch != train.global_batch || previous_.numerics != train.numerics ||
        train.grain.value_or(previous_.grain) != previous_.grain ||
        previous_.prediction.ranks.size() != previous_.ranks.size())
      return false;
    std::set<std::string> known;
    for (const RankPlacement& rank : previous_.ranks) known.insert(rank.device);
    for (const LeftOut& left : previous_.left_out) known.insert(left.device);
    return std::all_of(there_.devices.begin(), there_.devices.end(), [&](const DeviceSpec& one) {
      return known.contains(one.id) && index_.profile(one.id) != nullptr;
    });
  }

  /// Into replicas that are whole and others, and devices that none has.
  void take_apart() {
    std::set<std::string> left;
    for (const DeviceSpec& device : there_.devices) left.insert(device.id);
    for (const ReplicaPlan& replica : previous_.replicas) {
      Part part{.replica = replica, .ranks = {}, .updates = {}, .lost = {}};
      for (StagePlan& stage : part.replica.stages)
        for (Rank& rank : stage.ranks) {
          const auto number = static_cast<size_t>(rank.value());
          rank = Rank(static_cast<int>(part.ranks.size()));
          if (left.erase(previous_.ranks[number].device) == 0) part.lost.insert(part.ranks.size());
          part.ranks.push_back(previous_.ranks[number]);
          part.updates.push_back(previous_.prediction.ranks[number].update_seconds);
        }
      (part.lost.empty() ? whole_ : broken_).push_back(std::move(part));
    }
    for (const DeviceSpec& device : there_.devices)
      if (left.contains(device.id)) spare_.push_back({device.id, device.host, device.type});
    std::stable_sort(broken_.begin(), broken_.end(),
                     [](const Part& a, const Part& b) { return a.lost.size() < b.lost.size(); });
  }

  Result<Unit> mend(size_t number) {
    const std::vector<Part> broken = broken_;
    const std::vector<RankPlacement> spare = spare_;
    std::set<size_t>& lost = broken_[number].lost;
    while (!lost.empty() && replace(*lost.begin(), number)) lost.erase(lost.begin());
    if (!lost.empty()) {  // what came instead of some is of more use to others
      broken_ = broken;
      spare_ = spare;
      MOTLEY_TRY_VOID(cut_anew(&broken_[number]));
    }
    const Part& part = broken_[number];
    if (part.lost.empty()) whole_.push_back(part);
    for (size_t rank = 0; !part.lost.empty() && rank < part.ranks.size(); ++rank)
      if (!part.lost.contains(rank)) spare_.push_back(part.ranks[rank]);
    return Unit{};
  }

  /// By a device of its type that no replica has, or one that is to be mended later; of its host
  /// where several share its stage.
  bool replace(size_t rank, size_t number) {
    RankPlacement& place = broken_[number].ranks[rank];
    const StagePlan& stage = stage_of_rank(broken_[number].replica, rank);
    for (const bool same_host : {true, false}) {
      if (!same_host && stage.ranks.size() > 1) return false;
      const auto is_like = [&](const RankPlacement& other) {
        return other.type == place.type && (!same_host || other.host == place.host) &&
               precision_of(other) == stage.precision;
      };
      const auto take = [&](const RankPlacement& other) {
        place.device = other.device;
        place.host = other.host;
      };
      const auto spare = std::find_if(spare_.begin(), spare_.end(), is_like);
      if (spare != spare_.end()) {
        take(*spare);
        spare_.erase(spare);
        return true;
      }
      for (size_t other = broken_.size(); other-- > number + 1;)
        for (size_t theirs = 0; theirs < broken_[other].ranks.size(); ++theirs) {
          const RankPlacement& taken = broken_[other].ranks[theirs];
          if (broken_[other].lost.contains(theirs) || !is_like(taken)) continue;
          take(taken);
          broken_[other].lost.insert(theirs);
          return true;
        }
    }
    return false;
  }

  bool may_be_cut_anew(const Part& part) const {
    const ParallelSpec& wanted = request_.job.parallel;
    return may_cut_anew_ && part.lost.size() < part.ranks.size() && !wanted.pipeline &&
           wanted.tensor.value_or(1) == 1 &&
           std::all_of(part.replica.stages.begin(), part.replica.stages.end(),
                       [](const StagePlan& stage) {
                         return stage.ranks.size() == 1 && stage.recompute.empty();
                       }) &&
           std::none_of(part.ranks.begin(), part.ranks.end(),
                        [](const RankPlacement& rank) { return rank.host_optimizer; });
  }

  /// What is left of it, for its share of the samples; lost ranks stay where that does not fit.
  Result<Unit> cut_anew(Part* part) {
    if (!may_be_cut_anew(*part)) return Unit{};
    if (!costs_) {
      MOTLEY_TRY(groups_, group_devices(request_, GroupBy::kType));
      micro_batches_ = micro_batches_of(request_, groups_, previous_.grain);
      MOTLEY_TRY(costs_, PipelineCosts::make(request_, groups_, micro_batches_, counter_.layers));
    }
    std::vector<int> row;
    std::vector<size_t> ranks;
    for (size_t rank = 0; rank < part->ranks.size(); ++rank) {
      if (part->lost.contains(rank)) continue;
      row.push_back(group_of(part->ranks[rank].device));
      ranks.push_back(rank);
    }
    if (std::any_of(row.begin(), row.end(), [&](int group) { return !costs_->priced(group); }))
      return Unit{};
    const int grains = std::max<int>(
        1, static_cast<int>(part->replica.grains * ranks.size() / part->ranks.size()));
    const Pipeline pipeline =
        quickest_cut(*costs_, row, micro_batches_, part->replica.micro_batch,
                     std::min(grains * previous_.grain, previous_.global_batch), kNodesToImprove);
    if (!pipeline.stages.empty()) *part = as_part(pipeline, ranks, *part);
    return Unit{};
  }

  int group_of(const std::string& device) const {
    for (size_t group = 0; group < groups_.size(); ++group)
      for (const DeviceSpec* one : groups_[group].devices)
        if (one->id == device) return static_cast<int>(group);
    return 0;  // not reached: all that are there are in groups
  }

  /// Of these ranks of another part.
  Part as_part(const Pipeline& pipeline, const std::vector<size_t>& ranks, const Part& of) const {
    Part part;
    part.replica.micro_batch = pipeline.micro_batch;
    for (size_t s = 0; s < pipeline.stages.size(); ++s) {
      const PipelineStage& from = pipeline.stages[s];
      StagePlan stage;
      stage.first_layer = from.first;
      stage.last_layer = from.last;
      stage.ranks = {Rank(static_cast<int>(s))};
      stage.shares = {1.0};
      stage.precision = groups_[static_cast<size_t>(from.group)].precision;
      part.replica.stages.push_back(std::move(stage));
      part.ranks.push_back(of.ranks[ranks[s]]);
      // No state lies in host memory: what else is held changes nothing.
      part.updates.push_back(costs_->update_seconds(from, pipeline.micro_batch, 1, 0));
    }
    return part;
  }

  /// Of a step of so many of its grains; kNever where these take it beyond what was measured.
  double seconds(size_t number, int grains) {
    ++nodes_;
    const bool last = number + 1 == whole_.size();
    Plan alone;
    alone.numerics = previous_.numerics;
    alone.grain = previous_.grain;
    alone.global_batch = grains * previous_.grain - (last ? missing() : 0);
    alone.replicas = {whole_[number].replica};
    alone.replicas.front().grains = grains;
    for (StagePlan& stage : alone.replicas.front().stages)
      for (Rank& rank : stage.ranks)
        rank = Rank(rank.value() + static_cast<int>(first_rank_[number]));
    return replica_seconds(request_, alone, known_);
  }

  int missing() const { return previous_.grain_count() * previous_.grain - previous_.global_batch; }

  /// As all have their grains within the quickest step, those that are left go to whoever is
  /// through soonest with one more.
  bool deal() {
    for (const Part& part : whole_) {
      first_rank_.push_back(known_.all.size());
      for (size_t rank = 0; rank < part.ranks.size(); ++rank)
        known_.add(part.ranks[rank], profile_of(part.ranks[rank]), part.updates[rank]);
    }
    int left = previous_.grain_count();
    for (const Part& part : whole_) left -= part.replica.grains;
    using WithOneMore = std::pair<double, size_t>;
    std::priority_queue<WithOneMore, std::vector<WithOneMore>, std::greater<>> next;
    const auto offer = [&](size_t number) {
      next.emplace(seconds(number, whole_[number].replica.grains + 1), number);
    };
    for (size_t number = 0; left > 0 && number < whole_.size(); ++number) offer(number);
    for (; left > 0; --left) {
      const auto [seconds, number] = next.top();
      if (seconds == kNever) return false;
      next.pop();
      ++whole_[number].replica.grains;
      if (left > 1) offer(number);
    }
    return true;
  }

  Plan put_together() const {
    Plan plan;
    plan.job_key = previous_.job_key;
    plan.numerics = previous_.numerics;
    plan.global_batch = previous_.global_batch;
    plan.grain = previous_.grain;
    plan.shard_optimizer = previous_.shard_optimizer;
    for (const Part& part : whole_)
      if (part.replica.grains > 0) append_replica(part.replica, part.ranks, &plan);
    number_as_in(request_.fleet, &plan);
    leave_out_others(&plan);
    return plan;
  }

  void leave_out_others(Plan* plan) const {
    std::set<std::string> used;
    for (const RankPlacement& rank : plan->ranks) used.insert(rank.device);
    std::map<std::string, std::string> whys;
    for (const LeftOut& left : previous_.left_out) whys.emplace(left.device, left.why);
    for (const DeviceSpec& device : request_.fleet.devices) {
      if (used.contains(device.id)) continue;
      const auto why = whys.find(device.id);
      plan->left_out.push_back({device.id, !is_there(device.id)
                                               ? why_not_admitted(device, request_.job)
                                           : why != whys.end() ? why->second
                                                               : "its replica lost a device"});
    }
  }

  bool is_as_wanted(const Plan& plan) const {
    const auto& count = request_.job.devices.count;
    const int replicas = static_cast<int>(plan.replicas.size());
    return request_.job.parallel.data.value_or(replicas) == replicas &&
           (!count || (plan.world_size() >= count->low && plan.world_size() <= count->high));
  }

  /// Owners, memory and prediction; false where it does not fit, or is no plan for the devices that
  /// came instead of others.
  Result<bool> finish(Plan* plan) const {
    describe_links(request_, plan);  // memory depends on what is compressed and averaged
    const StateWays ways{
        previous_.shard_optimizer,
        std::any_of(plan->ranks.begin(), plan->ranks.end(),
                    [](const RankPlacement& rank) { return rank.host_optimizer; })};
    std::vector<RankMemory> counted;
    if (ways == StateWays{}) {
      plan->owners = even_ownership(*plan, request_.job.model);
      MOTLEY_TRY(counted, counter_.plan(*plan));
      if (!have_room(request_, *plan, counted)) return false;
    } else {
      MOTLEY_TRY(PlacedState placed, place_state(request_, counter_.plan, *plan, ways));
      if (!placed.fits) return false;
      *plan = std::move(placed.plan);
      counted = std::move(placed.counted);
    }
    return predict(request_, plan, counted) && validate(*plan, request_.job.model);
  }

  /// By what devices do alone: those that there were, and those that are left or came instead.
  double enough_seconds(const Plan& plan) const {
    std::map<std::string, double> mended;
    for (const RankPrediction& rank : plan.prediction.ranks)
      mended.emplace(plan.ranks[static_cast<size_t>(rank.rank.value())].device, speed_of(rank));
    double before = 0, left = 0;
    for (const RankPrediction& rank : previous_.prediction.ranks) {
      const std::string& device = previous_.ranks[static_cast<size_t>(rank.rank.value())].device;
      before += speed_of(rank);
      if (is_there(device)) left += speed_of(rank);
      mended.erase(device);
    }
    for (const auto& [device, speed] : mended) left += speed;
    return previous_.prediction.step_seconds * before / left * (1 + kEnoughMended);
  }

  static double speed_of(const RankPrediction& rank) {
    constexpr double kUnknown = 1e-9;  // of all, or of none
    return std::max(rank.solo_samples_per_second, kUnknown);
  }

  Result<Unit> record(Plan* plan) const {
    SearchRecord& search = plan->search;
    search.space = "the previous plan, of which " + std::to_string(broken_.size()) + " of " +
                   std::to_string(previous_.replicas.size()) +
                   " replicas lost devices: like ones in their places, what is left of others " +
                   (cut_any_anew() ? "cut anew" : "unused") + ", grains dealt anew";
    search.step_seconds = plan->prediction.step_seconds;
    MOTLEY_TRY(const LeastSeconds least, least_seconds_of_pipelines(request_));
    search.lower_bound_step_seconds = std::min(least.step, search.step_seconds);
    search.nodes = nodes_;
    plan->id = plan_id(*plan);
    return Unit{};
  }

  const PlanRequest& request_;
  const MemoryCounter& counter_;
  const bool may_cut_anew_;
  const Plan& previous_;
  const FleetSpec there_;  ///< admitted
  const DeviceIndex index_;
  std::vector<Part> whole_, broken_;
  std::vector<RankPlacement> spare_;
  KnownRanks known_;                 ///< of the whole parts, one after the other
  std::vector<size_t> first_rank_;   ///< of each
  std::vector<DeviceGroup> groups_;  ///< these three once something is cut anew
  std::vector<int> micro_batches_;
  std::optional<PipelineCosts> costs_;
  int64_t nodes_ = 0;
};

}  // namespace

Result<std::optional<MendedPlan>> mend_plan(const PlanRequest& request,
                                            const MemoryCounter& counter) {
  Mending cutting(request, counter, true), leaving(request, counter, false);
  MOTLEY_TRY(std::optional<Plan> cut, cutting.run());
  std::optional<Plan> left;
  if (cutting.cut_any_anew()) {
    MOTLEY_TRY(left, leaving.run());
  }
  if (!cut && !left) return std::nullopt;
  const bool leaves =
      !cut || (left && left->prediction.step_seconds < cut->prediction.step_seconds);
  MOTLEY_TRY(MendedPlan best,
             leaves ? leaving.finished(*std::move(left)) : cutting.finished(*std::move(cut)));
  return best;
}

}  // namespace motley
