// The prediction of a plan, whoever made it.

#include <algorithm>
#include <map>
#include <optional>

#include "core/holdings.h"
#include "planner/costs/cost_model.h"
#include "planner/costs/held_elements.h"
#include "planner/costs/layer_times.h"
#include "planner/costs/link_load.h"
#include "planner/costs/links.h"
#include "planner/costs/plain_memory.h"
#include "planner/costs/replica_times.h"
#include "planner/costs/slice_traffic.h"
#include "planner/costs/step_sums.h"
#include "planner/costs/sums_beside.h"
#include "planner/plain/deal.h"

namespace motley {
namespace {

Bytes memory_at(const DeviceProfile& device, int micro_batch) {
  for (const MemoryPoint& point : device.memory) {
    if (point.micro_batch >= micro_batch) return point.total();
  }
  return device.memory.empty() ? Bytes(0) : device.memory.back().total();
}

/// Replicas of one rank each with all state on its device: what the profile's tables of memory and
/// reductions were made for.
bool is_plain(const Plan& plan) {
  return !plan.shard_optimizer &&
         std::all_of(plan.replicas.begin(), plan.replicas.end(),
                     [](const ReplicaPlan& replica) { return is_plain(replica); }) &&
         std::none_of(plan.ranks.begin(), plan.ranks.end(),
                      [](const RankPlacement& rank) { return rank.host_optimizer; });
}

/// The step if communication were free and these devices' whole grains were dealt perfectly, with
/// the updates of the plan where it shares them; empty when the speed of one at such grains is not
/// known.
std::optional<double> ideal_step_seconds(const PlanRequest& request, const Plan& plan,
                                         const std::vector<const DeviceProfile*>& devices,
                                         const std::vector<RankPrediction>& ranks) {
  const StepCut cut{plan.global_batch, plan.grain};
  const MicroBatchRule rule = micro_batch_rule(request, plan.grain);
  std::vector<DeviceProfile> wholes;
  for (const DeviceProfile* device : devices) {
    auto whole = as_whole(*device, request.job.model, rule);
    if (!whole) return std::nullopt;
    if (plan.shard_optimizer) whole->update_seconds = ranks[wholes.size()].update_seconds;
    wholes.push_back(std::move(*whole));
  }
  std::vector<DeviceSizes> sizes;
  for (const DeviceProfile& whole : wholes)
    sizes.push_back({&whole, micro_batch_sizes(whole, rule)});
  GrainTables tables(std::move(sizes), cut);
  DealProblem problem;
  problem.grains = cut.grains();
  problem.has_short = cut.missing() > 0;
  problem.reduction.assign(devices.size() + 1, 0);
  problem.most_devices = static_cast<int>(devices.size());
  while (true) {
    problem.devices.clear();
    for (const auto& table : tables.of()) problem.devices.push_back(table.get());
    problem.section_times = &tables.section_times();
    const double step = best_deal(problem).deal.step_seconds;
    if (step < tables.beyond() || tables.beyond() == kNever) return step;
    tables.lengthen();
  }
}

Result<std::vector<const DeviceProfile*>> devices_of(const DeviceIndex& index, const Plan& plan) {
  std::vector<const DeviceProfile*> devices;
  for (const RankPlacement& rank : plan.ranks) {
    const DeviceProfile* device = index.profile(rank.device);
    const std::string name = rank.device + " (" + rank.type + ")";
    if (device == nullptr)
      return fail(ErrorCode::kInvalidSpec, "the profile lacks " + name + ", which the plan uses");
    devices.push_back(device);
  }
  return devices;
}

/// 0 where one of them has no price: a sum without it would flatter the plan.
double price_of(const DeviceIndex& index, const Plan& plan) {
  double price = 0;
  for (const RankPlacement& rank : plan.ranks) {
    const DeviceSpec* device = index.spec(rank.device);
    if (device == nullptr || device->price_per_hour <= 0) return 0;
    price += device->price_per_hour;
  }
  return price;
}

/// Of whole replicas nothing is looked up, and links may be many.
const std::vector<LinkProfile> kNoLinks;

/// Fills a prediction rank by rank.
class Predictor {
 public:
  Predictor(const PlanRequest& request, const Plan& plan, const DeviceIndex& index,
            std::vector<const DeviceProfile*> devices, const std::vector<RankMemory>& counted,
            bool only_step)
      : request_(request),
        plan_(plan),
        counted_(counted),
        only_step_(only_step),
        index_(index),
        devices_(std::move(devices)),
        elements_(static_cast<double>(parameter_count(request.job.model))),
        plain_(is_plain(plan)),
        known_(plain_ ? kNoLinks : request.profile.links),
        load_(request.job.model, known_) {
    if (plain_) {
      islands_ = device_islands(plan, request.fleet);
      plain_memory_.emplace(request, plan, islands_, index);
    }
    if (sums_go_beside(request, plan, index))
      passes_ = RankPasses{.ready = std::vector<double>(plan.ranks.size()),
                           .first_forward = std::vector<PassTimes>(plan.ranks.size()),
                           .last_backward = std::vector<PassTimes>(plan.ranks.size())};
  }

  /// When the last replica is through.
  Result<double> end_of_replicas() {
    prediction_.ranks.resize(plan_.ranks.size());
    for (size_t rank = 0; rank < devices_.size(); ++rank) begin_rank(rank);
    find_updates();
    find_ready();
    for (size_t i = 0; i < plan_.replicas.size(); ++i) {
      MOTLEY_TRY_VOID(is_plain(plan_.replicas[i]) && device_of_plain(i).curve("model") != nullptr
                          ? add_plain(static_cast<int>(i))
                          : add_cut(static_cast<int>(i)));
    }
    add_end(seconds_of(load_.busiest()), 0);
    return end_;
  }

  /// After end_of_replicas(): no more than that.
  Prediction as_ended() {
    prediction_.step_seconds = end_;
    return std::move(prediction_);
  }

  /// After end_of_replicas(): with what is exchanged.
  Prediction summed_up() {
    if (!plain_ && !plan_.shard_optimizer) traffic_ = slice_traffic(plan_, request_.job.model);
    sum_up();
    return std::move(prediction_);
  }

 private:
  static size_t index(Rank rank) { return static_cast<size_t>(rank.value()); }
  Rank plain_rank(size_t replica) const { return plan_.replicas[replica].stages[0].ranks[0]; }
  const DeviceProfile& device_of_plain(size_t replica) const {
    return *devices_[index(plain_rank(replica))];
  }

  /// What does not depend on the others.
  void begin_rank(size_t rank) {
    const DeviceProfile& device = *devices_[rank];
    RankPrediction& own = prediction_.ranks[rank];
    own.rank = Rank(static_cast<int>(rank));
    own.memory_limit = device.memory_limit;
    if (!counted_.empty()) set_memory(counted_[rank], &own);
    if (only_step_) return;
    const MicroBatchRule rule = solo_rule(plan_, request_.memory_headroom);
    const auto whole = as_whole(device, request_.job.model, rule);
    if (!whole) return;  // what it could do alone is not known
    own.solo_samples_per_second = solo_samples_per_second(*whole, plan_.global_batch, rule);
  }

  static void set_memory(const RankMemory& counted, RankPrediction* own) {
    own->memory = counted.total;
    own->host_memory = counted.host;
  }

  void find_updates() {
    if (plain_) {
      for (size_t rank = 0; rank < devices_.size(); ++rank)
        prediction_.ranks[rank].update_seconds = devices_[rank]->update_seconds;
    } else if (plan_.shard_optimizer) {
      traffic_ = slice_traffic(plan_, request_.job.model);
      for (size_t rank = 0; rank < devices_.size(); ++rank)
        set_update_of(rank, traffic_.ranks[rank].owned);
    } else {
      HeldElements held(request_.job.model);
      for (const ReplicaPlan& replica : plan_.replicas)
        for (const StagePlan& stage : replica.stages)
          for (size_t member = 0; member < stage.ranks.size(); ++member)
            set_update_of(index(stage.ranks[member]), held.of(stage, static_cast<int>(member)));
    }
  }

  void set_update_of(size_t rank, int64_t elements) {
    prediction_.ranks[rank].update_seconds =
        whole_update_seconds(*devices_[rank], plan_.ranks[rank].host_optimizer) *
        (static_cast<double>(elements) / elements_);
  }

  /// Sharded, ranks are free for a step once all have each other's weights.
  void find_ready() {
    double last = 0;
    for (const RankPrediction& rank : prediction_.ranks) last = std::max(last, rank.update_seconds);
    for (size_t rank = 0; rank < devices_.size(); ++rank)
      known_.add(plan_.ranks[rank], *devices_[rank],
                 plan_.shard_optimizer ? last : prediction_.ranks[rank].update_seconds);
    for (size_t rank = 0; passes_ && rank < devices_.size(); ++rank)
      passes_->ready[rank] = known_.all[rank].ready;
  }

  Result<Unit> add_plain(int replica) {
    const Rank rank = plain_rank(static_cast<size_t>(replica));
    const DeviceProfile& device = *devices_[index(rank)];
    const int samples = samples_of(plan_, replica).count;
    const int micro_batch =
        std::min(plan_.replicas[static_cast<size_t>(replica)].micro_batch, samples);
    RankPrediction& own = prediction_.ranks[index(rank)];
    own.compute_seconds = device_seconds(device, samples, micro_batch);
    if (counted_.empty() && plain_)
      set_memory(plain_memory_->of(rank, memory_at(device, micro_batch)), &own);
    const double end = section_seconds(own.compute_seconds, known_.all[index(rank)].ready);
    if (passes_) add_passes_of_plain(replica, samples, micro_batch, end);
    add_end(end, device.curve("model")->uncertainty_at(micro_batch));
    return Unit{};
  }

  void add_passes_of_plain(int replica, int samples, int micro_batch, double end) {
    const StagePlan& stage = plan_.replicas[static_cast<size_t>(replica)].stages[0];
    const size_t rank = index(stage.ranks[0]);
    const auto forward = [&](int size) {
      return forward_seconds(*devices_[rank], request_.job.model, stage, size);
    };
    const int last = samples % micro_batch > 0 ? samples % micro_batch : micro_batch;
    const double begin = known_.all[rank].ready + devices_[rank]->step_overhead_seconds;
    passes_->first_forward[rank] = {begin, begin + forward(micro_batch)};
    const double backward = devices_[rank]->curve("model")->seconds_at(last) - forward(last);
    passes_->last_backward[rank] = {end - backward, end};
  }

  Result<Unit> add_cut(int replica) {
    MOTLEY_TRY(const ReplicaTimes times, replica_times(request_, plan_, replica, known_));
    const ReplicaPlan& cut = plan_.replicas[static_cast<size_t>(replica)];
    const std::vector<StagePlan>& stages = cut.stages;
    double uncertainty = 0;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      for (size_t member = 0; member < stages[stage].ranks.size(); ++member) {
        const size_t rank = index(stages[stage].ranks[member]);
        prediction_.ranks[rank].compute_seconds = times.compute[stage][member];
        if (only_step_) continue;
        MOTLEY_TRY(const double own,
                   uncertainty_of(*devices_[rank], request_.job.model, stages[stage],
                                  static_cast<int>(member), cut.micro_batch));
        uncertainty = std::max(uncertainty, own);
      }
    }
    load_.add(plan_, replica);
    const PipelineTimeline timeline = simulate_pipeline(times.stages);
    for (size_t stage = 0; passes_ && stage < stages.size(); ++stage)
      for (const Rank rank : stages[stage].ranks)
        add_passes(timeline.stages[stage].actions, index(rank));
    add_end(seconds_of(timeline.end), uncertainty);
    return Unit{};
  }

  void add_passes(const std::vector<TimedAction>& actions, size_t rank) {
    const TimedAction &first = actions.front(), &last = actions.back();
    passes_->first_forward[rank] = {seconds_of(first.begin), seconds_of(first.end)};
    passes_->last_backward[rank] = {seconds_of(last.begin), seconds_of(last.end)};
  }

  /// Of a replica, whose passes may be off by so much, relatively.
  void add_end(double end, double uncertainty) {
    end_ = std::max(end_, end);
    latest_end_ = std::max(latest_end_, end * (1 + uncertainty));
    earliest_end_ = std::max(earliest_end_, end * (1 - uncertainty));
  }

  /// Of a step, relatively: of several replicas the last one counts, whichever that is.
  double uncertainty() const {
    const double of_ends = std::max(latest_end_ - end_, end_ - earliest_end_);
    const double of_sums = prediction_.communication_seconds * reduction_spread(request_.profile);
    return (of_ends + of_sums) / prediction_.step_seconds;
  }

  void sum_up() {
    const RankPrediction& slowest = *prediction_.slowest();
    end_ = std::max(end_, slowest.section_seconds());  // simulated time is in whole nanoseconds
    prediction_.compute_seconds = slowest.compute_seconds;
    prediction_.update_seconds = slowest.update_seconds;
    prediction_.bubble_seconds = end_ - slowest.section_seconds();
    if (passes_) passes_->end = end_;
    const StepSums sums =
        step_sums(request_, plan_, plain_ ? nullptr : &traffic_, passes_ ? &*passes_ : nullptr);
    prediction_.communication_seconds = sums.exposed;
    // What rounding leaves is nothing.
    const double hidden = sums.all - sums.exposed;
    prediction_.hidden_seconds = nanos_of_seconds(hidden) > Nanos(0) ? hidden : 0;
    prediction_.step_seconds = step_seconds(end_, prediction_.communication_seconds);
    prediction_.samples_per_second = plan_.global_batch / prediction_.step_seconds;
    if (!only_step_) prediction_.uncertainty = uncertainty();
    prediction_.cost_per_hour = price_of(index_, plan_);
    for (RankPrediction& rank : prediction_.ranks)
      rank.wait_seconds = end_ - rank.section_seconds();
    if (!only_step_) sum_solo_speeds();
  }

  /// Of all devices, or of none: a sum without one would flatter the plan.
  void sum_solo_speeds() {
    double sum = 0;
    for (const ReplicaPlan& replica : plan_.replicas)
      for (const StagePlan& stage : replica.stages)
        for (const Rank rank : stage.ranks) {
          const double own = prediction_.ranks[index(rank)].solo_samples_per_second;
          if (own <= 0) return;
          sum += own;
        }
    prediction_.solo_sum_samples_per_second = sum;
    // Devices that share replicas share grains, too: a deal of whole ones may bound nothing.
    const auto ideal = ideal_step_seconds(request_, plan_, devices_, prediction_.ranks);
    if (ideal && (!is_cut(plan_) || *ideal <= prediction_.step_seconds))
      prediction_.integer_bound_efficiency = plan_.global_batch / *ideal / sum;
  }

  const PlanRequest& request_;
  const Plan& plan_;
  const std::vector<RankMemory>& counted_;
  const bool only_step_;
  const DeviceIndex& index_;
  std::vector<const DeviceProfile*> devices_;  ///< by rank
  double elements_;                            ///< of the model
  bool plain_;
  DeviceIslands islands_;  ///< of a plain plan
  std::optional<PlainMemory> plain_memory_;
  PlanTraffic traffic_;               ///< of any other
  std::optional<RankPasses> passes_;  ///< where sums go beside
  KnownRanks known_;
  LinkLoad load_;
  Prediction prediction_;
  double end_ = 0;  ///< when the last replica is through, from the step's begin
  double latest_end_ = 0, earliest_end_ = 0;  ///< that may be, as far as was measured
};

Result<Unit> predict_as(const PlanRequest& request, const std::vector<RankMemory>& counted,
                        bool only_step, double enough, Plan* plan) {
  const DeviceIndex index(request.fleet, request.profile);
  MOTLEY_TRY(auto devices, devices_of(index, *plan));
  describe_links(request, plan);
  Predictor predictor(request, *plan, index, std::move(devices), counted, only_step);
  MOTLEY_TRY(const double end, predictor.end_of_replicas());
  if (end >= enough) {
    plan->prediction = predictor.as_ended();
    return Unit{};
  }
  plan->prediction = predictor.summed_up();
  return Unit{};
}

}  // namespace

Result<Unit> predict(const PlanRequest& request, Plan* plan,
                     const std::vector<RankMemory>& counted) {
  return predict_as(request, counted, false, kNever, plan);
}

Result<Unit> predict_step(const PlanRequest& request, Plan* plan, double enough) {
  return predict_as(request, {}, true, enough, plan);
}

}  // namespace motley
