#include "planner/costs/replica_times.h"

#include <algorithm>
#include <string>

#include "planner/costs/cost_model.h"
#include "planner/costs/layer_times.h"
#include "planner/plain/grain_table.h"

namespace motley {
namespace {

class ReplicaTimer {
 public:
  ReplicaTimer(const PlanRequest& request, const Plan& plan, int replica, const KnownRanks& ranks)
      : request_(request),
        number_(replica),
        replica_(plan.replicas[static_cast<size_t>(replica)]),
        ranks_(ranks),
        micro_batches_(micro_batches_of(plan, replica)) {}

  Result<ReplicaTimes> run() {
    ReplicaTimes times;
    for (size_t stage = 0; stage < replica_.stages.size(); ++stage) {
      times.stages.emplace_back();
      times.compute.emplace_back(replica_.stages[stage].ranks.size(), 0.0);
      MOTLEY_TRY_VOID(add_stage(stage, &times.stages.back(), &times.compute.back()));
      for (const Rank rank : replica_.stages[stage].ranks)
        times.stages.back().ready =
            std::max(times.stages.back().ready, nanos_of_seconds(known(rank).ready));
    }
    return times;
  }

 private:
  const KnownRanks::Known& known(Rank rank) const {
    return ranks_.all[static_cast<size_t>(rank.value())];
  }

  /// With the JSON pointer of the stage.
  Error at_stage(size_t number, Error error) const {
    error.message = "/replicas/" + std::to_string(number_) + "/stages/" + std::to_string(number) +
                    ": " + error.message;
    return error;
  }

  Result<Unit> add_stage(size_t number, StageTimes* times, std::vector<double>* compute) {
    const StagePlan& stage = replica_.stages[number];
    std::vector<PassSeconds> passes;  // by member
    double half_of_sums = 0;
    for (size_t i = 0; i < micro_batches_.size(); ++i) {
      const int samples = micro_batches_[i].count;
      if (i == 0 || samples != micro_batches_[i - 1].count) {
        MOTLEY_TRY(passes, passes_of(number, samples));
        half_of_sums = sum_seconds(stage, samples) / 2;
      }
      PassSeconds slowest;  // ranks that share a stage wait for each other in every layer
      for (size_t member = 0; member < stage.ranks.size(); ++member) {
        PassSeconds own = passes[member];
        add_section_starts(*known(stage.ranks[member]).device, number, static_cast<int>(i), &own);
        (*compute)[member] += own.forward + own.backward;
        slowest.forward = std::max(slowest.forward, own.forward);
        slowest.backward = std::max(slowest.backward, own.backward);
      }
      times->forward.push_back(nanos_of_seconds(slowest.forward + half_of_sums));
      times->backward.push_back(nanos_of_seconds(slowest.backward + half_of_sums));
    }
    times->forward_travels = transfer(number, number + 1);
    times->backward_travels = transfer(number, number - 1);
    return Unit{};
  }

  /// Of each member; without what begins sections.
  Result<std::vector<PassSeconds>> passes_of(size_t number, int samples) const {
    const StagePlan& stage = replica_.stages[number];
    std::vector<PassSeconds> passes;
    for (size_t member = 0; member < stage.ranks.size(); ++member) {
      const auto own = pass_seconds(*known(stage.ranks[member]).device, request_.job.model, stage,
                                    static_cast<int>(member), samples);
      if (!own) return fail(at_stage(number, own.error()));
      passes.push_back(*own);
    }
    return passes;
  }

  /// A section begins where something was received or sent: not between the last stage's forward
  /// and backward pass, nor between the first's backward and next forward pass.
  void add_section_starts(const DeviceProfile& device, size_t stage, int number,
                          PassSeconds* own) const {
    const auto stages = static_cast<int>(replica_.stages.size());
    const auto count = static_cast<int>(micro_batches_.size());
    const int begun = stages > 1 ? most_in_flight(stages, 0, count) : 1;
    if (stage > 0 || number < begun) own->forward += device.step_overhead_seconds;
    if (static_cast<int>(stage) + 1 < stages) own->backward += device.step_overhead_seconds;
  }

  const LinkProfile* link(Rank a, Rank b) const {
    return ranks_.links.between(known(a).host, known(b).host);
  }

  /// Of a full micro-batch's activations (or their gradients) to the next stage; a link nobody
  /// measured takes no time.
  Nanos transfer(size_t from, size_t to) const {
    if (to >= replica_.stages.size()) return Nanos(0);  // also what is before the first
    const ModelSpec& model = request_.job.model;
    const int element =
        reduced_bytes(carried(replica_.stages[from].precision, replica_.stages[to].precision));
    const double bytes = 1.0 * micro_batches_.front().count * model.context * model.width * element;
    double longest = 0;
    for (const Rank sender : replica_.stages[from].ranks)
      for (const Rank receiver : replica_.stages[to].ranks)
        if (const LinkProfile* way = link(sender, receiver))
          longest = std::max(longest, way->latency_seconds + bytes / way->bytes_per_second);
    return nanos_of_seconds(longest);
  }

  /// Of a micro-batch's sums over the ranks of a stage, as rings over their slowest link.
  double sum_seconds(const StagePlan& stage, int samples) const {
    const auto ranks = static_cast<double>(stage.ranks.size());
    const GroupSums sums =
        group_sums(*known(stage.ranks.front()).device, request_.job.model, stage, samples);
    double longest = 0;
    for (const Rank a : stage.ranks)
      for (const Rank b : stage.ranks)
        if (const LinkProfile* way = a < b ? link(a, b) : nullptr)
          longest = std::max(longest, 2 * (ranks - 1) *
                                          (sums.count * way->latency_seconds +
                                           sums.bytes / ranks / way->bytes_per_second));
    return longest;
  }

  const PlanRequest& request_;
  int number_;  ///< of the replica
  const ReplicaPlan& replica_;
  const KnownRanks& ranks_;
  std::vector<SampleRange> micro_batches_;
};

}  // namespace

bool is_plain(const ReplicaPlan& replica) {
  const StagePlan& first = replica.stages.front();
  return replica.stages.size() == 1 && first.ranks.size() == 1 &&
         std::all_of(first.recompute.begin(), first.recompute.end(),
                     [](Recompute part) { return part == Recompute::kNone; });
}

Result<ReplicaTimes> replica_times(const PlanRequest& request, const Plan& plan, int replica,
                                   const KnownRanks& ranks) {
  return ReplicaTimer(request, plan, replica, ranks).run();
}

double replica_seconds(const PlanRequest& request, const Plan& alone, const KnownRanks& ranks) {
  const ReplicaPlan& replica = alone.replicas.front();
  const Rank first = replica.stages.front().ranks.front();
  const KnownRanks::Known& known = ranks.all[static_cast<size_t>(first.value())];
  if (is_plain(replica) && known.device->curve("model") != nullptr)
    return section_seconds(device_seconds(*known.device, alone.global_batch, replica.micro_batch),
                           known.ready);
  const Result<ReplicaTimes> times = replica_times(request, alone, 0, ranks);
  return times ? seconds_of(simulate_pipeline(times->stages).end) : kNever;
}

}  // namespace motley
