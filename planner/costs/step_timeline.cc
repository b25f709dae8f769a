#include "planner/costs/step_timeline.h"

#include <algorithm>

#include "core/check.h"
#include "core/holdings.h"
#include "planner/costs/cost_model.h"
#include "planner/costs/layer_times.h"
#include "planner/costs/replica_times.h"
#include "planner/costs/slice_traffic.h"

namespace motley {
namespace {

/// Puts the spans of one rank behind each other; none goes beyond `most`.
class RankLine {
 public:
  RankLine(RankTimeline* line, Nanos most) : line_(line), most_(most) {}

  Nanos now() const { return now_; }

  void until(Nanos end, SpanKind kind, int micro_batch = -1, bool waiting = false) {
    end = std::min(end, most_);
    if (end <= now_) return;
    line_->spans.push_back({kind, waiting, micro_batch, now_, end});
    now_ = end;
  }
  void wait_until(Nanos end, SpanKind before, int micro_batch = -1) {
    until(end, before, micro_batch, true);
  }

 private:
  RankTimeline* line_;
  Nanos most_;
  Nanos now_{0};
};

class Timeliner {
 public:
  Timeliner(const PlanRequest& request, const Plan& plan)
      : request_(request),
        plan_(plan),
        known_(request.profile.links),
        compute_end_(nanos_of_seconds(plan.prediction.step_seconds -
                                      plan.prediction.communication_seconds)) {
    timeline_.step = nanos_of_seconds(plan.prediction.step_seconds);
    timeline_.ranks.resize(plan.ranks.size());
    for (int rank = 0; rank < plan.world_size(); ++rank) {
      timeline_.ranks[static_cast<size_t>(rank)].rank = Rank(rank);
      lines_.emplace_back(&timeline_.ranks[static_cast<size_t>(rank)], timeline_.step);
    }
  }

  Result<StepTimeline> run() {
    add_updates();
    for (size_t i = 0; i < plan_.replicas.size(); ++i)
      MOTLEY_TRY_VOID(is_one_curve(plan_.replicas[i]) ? add_plain(static_cast<int>(i))
                                                      : add_cut(static_cast<int>(i)));
    add_reduction();
    return std::move(timeline_);
  }

 private:
  static size_t index(Rank rank) { return static_cast<size_t>(rank.value()); }
  const DeviceProfile& device_of(Rank rank) const {
    return *request_.profile.find(plan_.ranks[index(rank)].device);
  }
  /// As predict() tells them apart.
  bool is_one_curve(const ReplicaPlan& replica) const {
    return is_plain(replica) && device_of(replica.stages[0].ranks[0]).curve("model") != nullptr;
  }

  /// Of the step before. Sharded, all wait for each other's weights.
  void add_updates() {
    double last = 0;
    for (const RankPrediction& rank : plan_.prediction.ranks)
      last = std::max(last, rank.update_seconds);
    for (const RankPrediction& rank : plan_.prediction.ranks) {
      lines_[index(rank.rank)].until(nanos_of_seconds(rank.update_seconds), SpanKind::kUpdate);
      if (plan_.shard_optimizer)
        lines_[index(rank.rank)].wait_until(nanos_of_seconds(last), SpanKind::kReduce);
      known_.add(plan_.ranks[index(rank.rank)], device_of(rank.rank),
                 plan_.shard_optimizer ? last : rank.update_seconds);
    }
  }

  Result<Unit> add_plain(int number) {
    const StagePlan& stage = plan_.replicas[static_cast<size_t>(number)].stages[0];
    const Rank rank = stage.ranks[0];
    const DeviceProfile& device = device_of(rank);
    RankLine& line = lines_[index(rank)];
    double now = known_.all[index(rank)].ready + device.step_overhead_seconds;
    int count = 0;
    for (const SampleRange& samples : micro_batches_of(plan_, number)) {
      const double seconds = device.curve("model")->seconds_at(samples.count);
      const double forward = forward_seconds(device, request_.job.model, stage, samples.count);
      line.until(at_most(nanos_of_seconds(now + forward)), SpanKind::kForward, count);
      now += seconds;
      line.until(at_most(nanos_of_seconds(now)), SpanKind::kBackward, count++);
    }
    return Unit{};
  }

  /// What was rounded must not reach into the sums.
  Nanos at_most(Nanos time) const { return std::min(time, compute_end_); }

  Result<Unit> add_cut(int number) {
    MOTLEY_TRY(const ReplicaTimes times, replica_times(request_, plan_, number, known_));
    const PipelineTimeline pipeline = simulate_pipeline(times.stages);
    const std::vector<StagePlan>& stages = plan_.replicas[static_cast<size_t>(number)].stages;
    for (size_t stage = 0; stage < stages.size(); ++stage)
      for (size_t member = 0; member < stages[stage].ranks.size(); ++member)
        add_member(times, pipeline, stage, member, stages[stage].ranks[member]);
    return Unit{};
  }

  /// One rank of a stage: within each pass it computes its part of the time, then sums with the
  /// others.
  void add_member(const ReplicaTimes& times, const PipelineTimeline& pipeline, size_t stage,
                  size_t member, Rank rank) {
    RankLine& line = lines_[index(rank)];
    const StageTimeline& of_stage = pipeline.stages[stage];
    const double busy = seconds_of(of_stage.busy);
    const double part = busy > 0 ? std::min(1.0, times.compute[stage][member] / busy) : 1;
    line.wait_until(at_most(times.stages[stage].ready), SpanKind::kGroupSum);
    for (const TimedAction& action : of_stage.actions) {
      const PipelineAction& what = action.action;
      const size_t sender = what.backward ? stage + 1 : stage - 1;  // wraps before the first
      if (sender < times.stages.size()) {
        const StageTimes& from = times.stages[sender];
        const Nanos travels = what.backward ? from.backward_travels : from.forward_travels;
        line.wait_until(at_most(action.begin - travels), SpanKind::kReceive, what.micro_batch);
        line.until(at_most(action.begin), SpanKind::kReceive, what.micro_batch);
      }
      const Nanos length = action.end - action.begin;
      const auto computed =
          Nanos(static_cast<int64_t>(static_cast<double>(length.value()) * part + 0.5));
      // A rank alone in its stage has nobody to sum with.
      const bool alone = times.compute[stage].size() == 1;
      line.until(at_most(alone ? action.end : action.begin + computed),
                 what.backward ? SpanKind::kBackward : SpanKind::kForward, what.micro_batch);
      line.until(at_most(action.end), SpanKind::kGroupSum, what.micro_batch);
    }
  }

  /// Who has nobody to exchange gradients with waits for those who have.
  void add_reduction() {
    const std::vector<bool> alone = without_peers();
    for (RankLine& line : lines_) {
      line.wait_until(compute_end_, SpanKind::kReduce);
      const auto rank = static_cast<size_t>(&line - lines_.data());
      line.until(timeline_.step, SpanKind::kReduce, -1, alone[rank]);
    }
  }

  std::vector<bool> without_peers() const {
    std::vector<bool> alone(plan_.ranks.size(), plan_.world_size() == 1);
    const bool all_whole = std::all_of(plan_.replicas.begin(), plan_.replicas.end(),
                                       [](const ReplicaPlan& r) { return is_plain(r); });
    if (all_whole) return alone;
    const std::vector<SliceTraffic> traffic = slice_traffic(plan_, request_.job.model).ranks;
    for (size_t rank = 0; rank < traffic.size(); ++rank)
      alone[rank] = traffic[rank].peers.size() < 2;
    return alone;
  }

  const PlanRequest& request_;
  const Plan& plan_;
  KnownRanks known_;
  Nanos compute_end_;
  StepTimeline timeline_;
  std::vector<RankLine> lines_;
};

}  // namespace

SpanClass TimelineSpan::span_class() const {
  if (waiting) return SpanClass::kWaiting;
  const bool works =
      kind == SpanKind::kUpdate || kind == SpanKind::kForward || kind == SpanKind::kBackward;
  return works ? SpanClass::kBusy : SpanClass::kCommunicating;
}

Nanos RankTimeline::time_in(SpanClass which) const {
  Nanos sum{0};
  for (const TimelineSpan& span : spans)
    if (span.span_class() == which) sum += span.end - span.begin;
  return sum;
}

Result<StepTimeline> step_timeline(const PlanRequest& request, const Plan& plan) {
  MOTLEY_CHECK_EQ(plan.prediction.ranks.size(), plan.ranks.size());
  return Timeliner(request, plan).run();
}

}  // namespace motley
