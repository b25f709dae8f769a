#include "worker/train/stepper.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/debug_env.h"
#include "core/log.h"
#include "worker/optimizer/schedule.h"
#include "worker/train/agreement.h"

namespace motley {
namespace {

/// How often exact may lower its exponent for one step: a gradient that is not finite overflows at
/// any.
constexpr int kMostOverflows = 4;

/// What all ranks sum after computing: exact to the bit, whatever the numerics.
struct Agreement {
  int64_t tokens = 0;
  int64_t loss_fixed = 0;
  int64_t overflow = 0;
  int64_t stop = 0;
  int64_t save = 0;
  int64_t shards_settled = 0;
  int64_t sums_begun = 0;

  std::span<int64_t> span() { return {&tokens, sizeof(Agreement) / sizeof(int64_t)}; }
};

/// A step that overflows is repeated: by then nothing of it may be in what compression keeps.
bool repeats_with_residuals(const Attempt& attempt, const RankParts& parts) {
  return parts.slices->compresses() && scales_loss(attempt.plan);
}

/// The same answer on all ranks: those who wait at once for their part would hold up those who wait
/// for it in their next forward pass.
bool weights_may_overlap(const Attempt& attempt) {
  const auto overlaps = [&](const RankPlacement& rank) {
    const DeviceSpec* const device = attempt.fleet.find(rank.device);
    return device != nullptr && computes_beside_sums(*device);
  };
  return std::all_of(attempt.plan.ranks.begin(), attempt.plan.ranks.end(), overlaps);
}

}  // namespace

Stepper::Stepper(const Attempt& attempt, RankParts& parts, Communicator& world,
                 std::function<void()> on_progress)
    : attempt_(attempt),
      parts_(parts),
      world_(world),
      pipeline_(attempt, parts, world, std::move(on_progress)),
      exchanges_gradients_(parts.slices->has_gradients()),
      exchanges_weights_(parts.slices->has_weights()),
      overlaps_(exchanges_gradients_ && parts.slices->may_begin_early() && !parts.island &&
                parts.device->host_accessible() && !parts.pacer.paced() &&
                !repeats_with_residuals(attempt, parts)),
      weights_overlap_(weights_may_overlap(attempt)) {}

Result<StepResult> Stepper::run(int64_t step, const StepWishes& wishes) {
  StepResult result;
  result.samples = parts_.share.samples();
  if (parts_.slices->compresses())
    parts_.slices->set_codec(codec_in_step(attempt_.plan.compression.codec, step));
  result.update_seconds = update_seconds_;
  for (int overflows = 0;; ++overflows) {
    parts_.engine->set_loss_scale_exponent(parts_.loss_scale.exponent());
    const bool beside = sums_beside(step);
    MOTLEY_TRY_VOID(compute(step, beside));
    MOTLEY_TRY(const LossSums mine, parts_.engine->sums());  // the device is through
    parts_.sections.close();
    result.compute_seconds += parts_.sections.take_worked() - std::exchange(update_seconds_, 0);
    MOTLEY_TRY(
        const Sums sums,
        sum_losses(peers(), mine, step, parts_.average ? StepWishes{} : wishes, beside, &result));
    result.loss = sums.loss / static_cast<double>(sums.tokens);
    const bool usable = std::isfinite(result.loss) && !sums.overflow;
    // What one has begun all bring to its end, also of a step that is repeated or the last.
    if (usable || sums.begun) MOTLEY_TRY_VOID(beside ? finish_sum() : sum_gradients());
    if (!std::isfinite(result.loss)) return diverged_at(step);
    if (!sums.overflow) {
      MOTLEY_TRY_VOID(measure_gradient(step, sums.tokens, &result));
      parts_.sections.end_step();
      leave_communication(&result);
      MOTLEY_TRY_VOID(update(step, sums.tokens, &result));
      parts_.loss_scale.keep();
      if (parts_.average && all_meet(step))
        MOTLEY_TRY_VOID(average_groups(mine, step, wishes, &result));
      return result;
    }
    if (!lower_scales(overflows)) return diverged_at(step);
    leave_communication(&result);
  }
}

/// A paced rank computes before the time of the device it stands for is over: what it would have
/// sent by then is not known, and nothing is.
bool Stepper::sums_beside(int64_t step) const { return overlaps_ && !afterwards(step); }

bool Stepper::afterwards(int64_t step) const {
  return failpoint("sum_afterwards_at_step_" + std::to_string(step), world_.rank());
}

/// The transport carries one reduction at a time: weights are all there before gradients go out.
Result<Unit> Stepper::compute(int64_t step, bool beside) {
  PassHooks hooks{
      .before_use = [this](const ParameterRange& range) { return await_weights(range); },
      .after_first_forward = [this]() -> Result<Unit> {
        MOTLEY_TRY_VOID(await_weights({0, parts_.engine->held_elements()}));
        return settle();
      }};
  if (beside) {
    // Not before: what watches for chunks to send would only take time from computing.
    hooks.before_last_backward = [this]() -> Result<Unit> {
      MOTLEY_TRY(const GradientSpans gradients, parts_.engine->gradients());
      return parts_.slices->begin_sum(gradients);
    };
    hooks.on_final = [this](const ParameterRange& range) { parts_.slices->is_final(range); };
  }
  return pipeline_.train(step, hooks);
}

Result<Unit> Stepper::await_weights(const ParameterRange& range) {
  if (parts_.slices->has_arrived(range)) return Unit{};
  parts_.sections.charge(0, 0);  // so far it worked
  parts_.sections.close();
  MOTLEY_TRY_VOID(parts_.slices->arrive(range));
  parts_.sections.mark_wait(TraceKind::kDistribute);
  parts_.sections.open();
  return Unit{};
}

Result<Unit> Stepper::settle() { return parts_.slices->finish_distribute(); }

Result<Unit> Stepper::finish_sum() {
  MOTLEY_TRY_VOID(parts_.sections.meet(TraceKind::kReduce, peers()));
  MOTLEY_TRY_VOID(parts_.slices->finish_sum());
  parts_.sections.mark(TraceKind::kReduce);
  return Unit{};
}

/// After an overflow, on all ranks alike: whether the step may be repeated. It is not known which
/// of the two it was that left its range.
bool Stepper::lower_scales(int overflows_before) {
  const bool loss_scale = parts_.loss_scale.lower();
  if (!exact()) return loss_scale;
  parts_.engine->set_exact_exponent(parts_.engine->next_exact_exponent(true));
  return loss_scale || overflows_before < kMostOverflows;
}

tl::unexpected<Error> Stepper::diverged_at(int64_t step) {
  return joint_failure(
      peers(), ErrorCode::kDiverged,
      "loss or gradient not finite at step " + std::to_string(step) + ": lower train.optimizer.lr",
      parts_.part.ranks.front());
}

/// The end of the step's communication; the next section begins.
void Stepper::leave_communication(StepResult* result) {
  result->ended = parts_.pacer.now();
  parts_.sections.open();
  result->wait_seconds += parts_.sections.take_waited();
}

Result<Stepper::Sums> Stepper::sum_losses(Communicator& ranks, const LossSums& mine, int64_t step,
                                          const StepWishes& wishes, bool sum_begun,
                                          StepResult* result) {
  Agreement agreement{.tokens = mine.tokens,
                      .loss_fixed = mine.loss_fixed,
                      .overflow = mine.overflow,
                      .stop = wishes.stop,
                      .save = wishes.save,
                      .shards_settled = wishes.shard_settled,
                      .sums_begun = sum_begun};
  double loss = mine.loss;
  if (failpoint("nan_at_step_" + std::to_string(step), world_.rank())) {
    loss = std::numeric_limits<double>::quiet_NaN();
    agreement.overflow = 1;
  }
  MOTLEY_TRY_VOID(parts_.sections.meet(TraceKind::kAgreement, ranks));
  MOTLEY_TRY_VOID(ranks.all_reduce_sum(agreement.span()));
  MOTLEY_TRY_VOID(ranks.all_reduce_sum(std::span(&loss, 1)));
  parts_.sections.mark(TraceKind::kAgreement);
  result->stop = agreement.stop > 0;
  result->save = agreement.save > 0;
  result->all_shards_settled = agreement.shards_settled == ranks.size();
  Sums sums{.loss = loss,
            .tokens = agreement.tokens,
            .overflow = agreement.overflow > 0,
            .begun = agreement.sums_begun > 0};
  if (exact() && std::isfinite(loss))
    sums.loss = static_cast<double>(agreement.loss_fixed) / kLossUnit;
  return sums;
}

/// Sharded, each rank needs the sums of what it owns only. What no other rank has a copy of stays
/// on the device.
Result<Unit> Stepper::sum_gradients() {
  const WorkRange range(*parts_.device, "reduce");
  MOTLEY_TRY_VOID(parts_.sections.meet(TraceKind::kReduce, peers()));
  if (parts_.island) return sum_with_island();
  GradientSpans gradients;
  if (exchanges_gradients_) {
    MOTLEY_TRY(gradients, parts_.engine->staged_gradients());
    MOTLEY_TRY_VOID(parts_.slices->sum(gradients));
  }
  parts_.sections.mark(TraceKind::kReduce);
  return Unit{};
}

Result<Unit> Stepper::sum_with_island() {
  MOTLEY_TRY_VOID(
      parts_.island->sum({.on_device = [this] { return parts_.engine->device_gradients(); },
                          .at_host = [this] { return parts_.engine->staged_gradients(); }}));
  parts_.sections.mark(TraceKind::kReduce);
  return Unit{};
}

Result<Unit> Stepper::finish() {
  MOTLEY_TRY_VOID(settle());
  parts_.sections.close();
  parts_.sections.open();
  if (!parts_.island) return Unit{};
  // All that was trained is there: how its ranks part is no reason to fail.
  if (const auto closed = parts_.island->close(); !closed) log_warning(closed.error().message);
  parts_.island.reset();
  return Unit{};
}

/// Collective, hence before the section of the update: nobody's waiting counts as another's work.
Result<Unit> Stepper::measure_gradient(int64_t step, int64_t tokens, StepResult* result) {
  MOTLEY_TRY(result->gradient_norm, parts_.engine->gradient_norm(tokens, peers()));
  parts_.sections.mark(TraceKind::kAgreement);
  // The norm is of all peers' gradients: all see it.
  if (!std::isfinite(result->gradient_norm)) return diverged_at(step);
  return Unit{};
}

Result<Unit> Stepper::update(int64_t step, int64_t tokens, StepResult* result) {
  const TrainSpec& train = attempt_.job.train;
  parts_.sections.work_on(TraceKind::kUpdate);
  result->learning_rate = learning_rate(train.optimizer, train.schedule, step, train.steps);
  MOTLEY_TRY_VOID(parts_.engine->update(step, result->learning_rate, tokens,
                                        clip_factor(train.optimizer.clip, result->gradient_norm)));
  if (exact()) parts_.engine->set_exact_exponent(parts_.engine->next_exact_exponent(false));
  parts_.sections.charge(update_flops(parts_.engine->updated_elements()), 0);
  update_seconds_ = parts_.pacer.section_seconds();
  return attempt_.plan.shard_optimizer ? share_weights(step) : Result<Unit>(Unit{});
}

/// What the owners have updated reaches the other holders.
Result<Unit> Stepper::share_weights(int64_t step) {
  MOTLEY_TRY_VOID(parts_.device->synchronize());  // the update is work, not waiting
  parts_.sections.close();
  MOTLEY_TRY_VOID(parts_.sections.meet(TraceKind::kDistribute, world_));
  if (exchanges_weights_) {
    MOTLEY_TRY(const std::span<std::byte> weights, parts_.engine->state(Engine::State::kWeight));
    MOTLEY_TRY_VOID(parts_.slices->begin_distribute(weights, parts_.engine->element_bytes()));
    if (!weights_overlap_ || afterwards(step)) MOTLEY_TRY_VOID(settle());
    MOTLEY_TRY_VOID(parts_.engine->state_written(Engine::State::kWeight));
  }
  parts_.sections.mark(TraceKind::kDistribute);
  parts_.sections.open();
  return Unit{};
}

bool Stepper::all_meet(int64_t step) const {
  if (!parts_.average) return true;
  const JobSpec& job = attempt_.job;
  const auto is_every = [step](int64_t every) { return every > 0 && step % every == 0; };
  return step == job.train.steps || is_every(attempt_.plan.sync.across) ||
         is_every(job.checkpoint.every_steps) || is_every(job.train.eval.every);
}

/// What passes between groups: `mine` once more, so that the loss is of all samples, then what they
/// have learnt.
Result<Unit> Stepper::average_groups(const LossSums& mine, int64_t step, const StepWishes& wishes,
                                     StepResult* result) {
  MOTLEY_TRY_VOID(parts_.device->synchronize());  // the update is work, not waiting
  parts_.sections.close();
  MOTLEY_TRY(const Sums sums, sum_losses(world_, mine, step, wishes, false, result));
  result->loss = sums.loss / static_cast<double>(sums.tokens);
  MOTLEY_TRY_VOID(agree_on_loss_scale());
  MOTLEY_TRY_VOID(parts_.average->run());
  parts_.sections.mark(TraceKind::kAverage);
  parts_.sections.open();
  return Unit{};
}

/// The smaller: it has overflowed nowhere.
Result<Unit> Stepper::agree_on_loss_scale() {
  const LossScaleState& mine = parts_.loss_scale.state();
  int64_t least[2] = {-mine.exponent, -mine.kept_steps};
  MOTLEY_TRY_VOID(world_.all_reduce_max(std::span<int64_t>(least)));
  parts_.loss_scale.restore(
      {.exponent = static_cast<int>(-least[0]), .kept_steps = static_cast<int>(-least[1])});
  return Unit{};
}

Result<double> Stepper::evaluate() {
  MOTLEY_TRY_VOID(settle());
  MOTLEY_TRY_VOID(pipeline_.evaluate());
  MOTLEY_TRY(const LossSums mine, parts_.engine->sums());
  parts_.sections.close();
  parts_.sections.take_worked();
  update_seconds_ = 0;  // it was in the section that just ended
  StepResult ignored;
  MOTLEY_TRY(const Sums sums, sum_losses(world_, mine, 0, {}, false, &ignored));
  parts_.sections.open();
  parts_.sections.take_waited();
  return sums.loss / static_cast<double>(sums.tokens);
}

}  // namespace motley
