#include "worker/train/trainer.h"

#include <csignal>
#include <cstring>
#include <limits>
#include <utility>

#include "core/clock.h"
#include "core/debug_env.h"
#include "core/log.h"
#include "core/run_layout.h"
#include "worker/engine/weights_hash.h"
#include "worker/train/agreement.h"
#include "worker/train/rank_parts.h"
#include "worker/train/resume.h"
#include "worker/train/saver.h"
#include "worker/train/stepper.h"
#include "worker/train/storage.h"
#include "worker/train/trace_files.h"

namespace motley {
namespace {

/// Deaths that tests order (HACKING.md).
void die_if_told(int64_t step, int rank) {
  const std::string number = std::to_string(step);
  if (failpoint("kill_at_step_" + number, rank)) std::raise(SIGKILL);
  while (failpoint("hang_at_step_" + number, rank))
    steady_clock().sleep_until(Nanos(std::numeric_limits<int64_t>::max()));
}

uint64_t bits_of(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

class Trainer {
 public:
  Trainer(const Attempt& attempt, Communicator& world, Reporter& reporter, ControlWishes& wishes,
          FileSystem& fs)
      : attempt_(attempt), world_(world), reporter_(reporter), wishes_(wishes), fs_(fs) {}

  Result<TrainOutcome> run();

 private:
  Result<Unit> train_to_the_end();
  Result<Unit> prepare();
  Result<Unit> begin_trace();
  void keep_trace(bool ended_well);
  Result<Unit> one_step();
  void report(const StepResult& result);
  Result<Unit> at_boundary(const StepResult& result);  ///< where all ranks meet
  bool save_is_due() const;
  bool evaluation_is_due() const;
  Result<Unit> evaluate();
  Result<Unit> finish_save();
  Result<Unit> save_now();
  Result<Unit> finish();
  Result<Unit> count_what_it_took();

  int64_t steps() const { return attempt_.job.train.steps; }
  bool is_root() const { return world_.rank() == 0; }
  StepWishes collect_wishes();
  void wait_for_shard() {
    saver_->wait_for_shard([this] { reporter_.progress(); });
  }

  const Attempt& attempt_;
  Communicator& world_;
  Reporter& reporter_;
  ControlWishes& wishes_;
  FileSystem& fs_;
  std::unique_ptr<RankParts> parts_;
  Storage storage_;
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<Stepper> stepper_;
  std::optional<Trace> trace_;

  // The same on all ranks:
  TrainOutcome outcome_;
  int64_t saved_step_ = 0;  ///< of the newest checkpoint
  int64_t evaluated_step_ = -1;
  bool save_requested_ = false;  ///< waits until the save in flight is over
  bool disturbed_ = false;       ///< an evaluation or a save falls into the step that begins
  bool special_ = false;         ///< one fell into the step under way

  double boundary_ = 0;  ///< when the last step ended, on the pacer's clock
  Nanos last_save_{0};   ///< real time
};

Result<TrainOutcome> Trainer::run() {
  const auto ended = train_to_the_end();
  if (trace_) keep_trace(ended.has_value());
  if (!ended) return fail(ended.error());
  return outcome_;
}

Result<Unit> Trainer::train_to_the_end() {
  reporter_.phase("loading", outcome_.step);
  MOTLEY_TRY_VOID(prepare());
  reporter_.phase("training", outcome_.step);
  if (attempt_.trace) MOTLEY_TRY_VOID(begin_trace());
  parts_->sections.open();
  boundary_ = parts_->pacer.now();
  last_save_ = steady_clock().now();
  while (outcome_.step < steps() && !outcome_.stopped) MOTLEY_TRY_VOID(one_step());
  return finish();
}

/// Together, so that one zero serves all ranks' clocks.
Result<Unit> Trainer::begin_trace() {
  trace_.emplace();
  MOTLEY_TRY_VOID(world_.barrier());
  trace_->begin(outcome_.step + 1, parts_->pacer.now());
  parts_->sections.trace_to(&*trace_);
  return Unit{};
}

/// Whatever became of the attempt; of one that failed, each on its own host. A trace that cannot be
/// kept is no reason to fail.
void Trainer::keep_trace(bool ended_well) {
  Result<Unit> kept = write_trace(attempt_, Rank(world_.rank()), *trace_, fs_);
  if (ended_well) {
    const auto collected = collect_traces(attempt_, world_, storage_, *trace_, fs_);
    if (kept) kept = collected;
  }
  if (!kept) log_warning("no trace: " + kept.error().to_string());
}

Result<Unit> Trainer::prepare() {
  MOTLEY_TRY(parts_, build_rank(attempt_, world_));
  MOTLEY_TRY(
      storage_,
      probe_storage(world_, fs_, checkpoints_directory(attempt_.run_dir, attempt_.job.checkpoint)));
  MOTLEY_TRY(const ResumePoint point, resume(attempt_, *parts_, world_, storage_, reporter_, fs_));
  outcome_.step = saved_step_ = point.step;
  outcome_.checkpoint = point.directory;
  auto saver = Saver::create(attempt_, *parts_, world_, storage_, fs_);
  Result<Unit> ready = Unit{};
  if (!saver) ready = fail(saver.error());
  if (saver) ready = reporter_.begin_after(point.step);
  MOTLEY_TRY_VOID(all_succeeded(world_, ready));
  saver_ = std::move(*saver);
  stepper_ = std::make_unique<Stepper>(attempt_, *parts_, world_, [this] { reporter_.progress(); });
  log_info("counted memory: " + std::to_string(parts_->counted_memory().value()) + " bytes");
  if (is_root())
    log_info(point.directory.empty()
                 ? "training from the beginning"
                 : "resumed at step " + std::to_string(point.step) + " from " + point.directory);
  return Unit{};
}

StepWishes Trainer::collect_wishes() {
  StepWishes mine;
  mine.stop = wishes_.stop;
  mine.save = wishes_.checkpoint.exchange(false);
  // Under the virtual clock nothing may depend on how long a disk takes.
  if (parts_->pacer.virtual_clock()) wait_for_shard();
  mine.shard_settled = saver_->shard_settled();
  const Nanos every = attempt_.job.checkpoint.every_time;
  if (is_root() && every > Nanos(0) && steady_clock().now() - last_save_ >= every) mine.save = true;
  return mine;
}

Result<Unit> Trainer::one_step() {
  const int64_t step = outcome_.step + 1;
  die_if_told(step, world_.rank());
  if (failpoint("oom_at_step_" + std::to_string(step), world_.rank()))
    return fail(ErrorCode::kOutOfMemory, "out of memory, as the failpoint says");
  const CodecSpec& codec = attempt_.plan.compression.codec;
  special_ = std::exchange(disturbed_, false) || saver_->in_flight() ||
             (parts_->slices->compresses() && codec_in_step(codec, step) != codec);
  const bool all_meet = stepper_->all_meet(step);
  MOTLEY_TRY(const StepResult result,
             stepper_->run(step, all_meet ? collect_wishes() : StepWishes{}));
  outcome_.step = step;
  outcome_.loss = result.loss;
  outcome_.stopped = result.stop && step < steps();
  report(result);
  return all_meet ? at_boundary(result) : Result<Unit>(Unit{});
}

void Trainer::report(const StepResult& result) {
  StepReport report;
  report.rank = world_.rank();
  report.step = outcome_.step;
  report.step_seconds = result.ended - std::exchange(boundary_, result.ended);
  report.compute_seconds = result.compute_seconds;
  report.wait_seconds = result.wait_seconds;
  report.update_seconds = result.update_seconds;
  report.samples = result.samples;
  report.overruns = parts_->pacer.overruns();
  report.sections = parts_->pacer.sections();
  report.special = special_;
  if (is_root()) {
    report.loss = result.loss;
    report.loss_bits = bits_of(result.loss);
    report.gradient_norm = result.gradient_norm;
    report.learning_rate = result.learning_rate;
  }
  reporter_.step(report);
}

Result<Unit> Trainer::at_boundary(const StepResult& result) {
  save_requested_ |= result.save;
  if (saver_->in_flight() && result.all_shards_settled) {
    disturbed_ = true;
    MOTLEY_TRY_VOID(finish_save());
  }
  if (evaluation_is_due()) {
    disturbed_ = true;
    MOTLEY_TRY_VOID(evaluate());
  }
  if (!save_is_due()) return Unit{};
  if (saver_->in_flight()) {  // one that was asked for comes later, any other is left out
    if (is_root()) log_info("a checkpoint is due but the last one is still being written");
    return Unit{};
  }
  save_requested_ = false;
  last_save_ = steady_clock().now();
  MOTLEY_TRY_VOID(stepper_->settle());
  MOTLEY_TRY_VOID(saver_->begin(outcome_.step));
  if (!parts_->average) return Unit{};
  disturbed_ = true;  // ranks meet again in so many steps only
  wait_for_shard();
  return finish_save();
}

bool Trainer::evaluation_is_due() const {
  const EvalSpec& eval = attempt_.job.train.eval;
  return eval.samples > 0 && eval.every > 0 && outcome_.step % eval.every == 0;
}

/// The last one is finish()'s.
bool Trainer::save_is_due() const {
  if (outcome_.stopped || outcome_.step == steps()) return false;
  const int64_t every = attempt_.job.checkpoint.every_steps;
  return save_requested_ || (every > 0 && outcome_.step % every == 0);
}

Result<Unit> Trainer::evaluate() {
  reporter_.phase("evaluating", outcome_.step);
  MOTLEY_TRY(const double loss, stepper_->evaluate());
  outcome_.eval_loss = loss;
  evaluated_step_ = outcome_.step;
  if (is_root()) reporter_.evaluated({.step = outcome_.step, .loss = loss});
  reporter_.phase("training", outcome_.step);
  return Unit{};
}

Result<Unit> Trainer::finish_save() {
  MOTLEY_TRY(const SaveOutcome saved, saver_->finish());
  if (saved.committed) {
    saved_step_ = saved.report.step;
    outcome_.checkpoint = saved.report.directory;
    if (is_root()) reporter_.saved(saved.report);
  } else if (is_root()) {
    SavedReport report = saved.report;
    report.error = saved.error;
    reporter_.saved(report);
  }
  return Unit{};
}

Result<Unit> Trainer::save_now() {
  reporter_.phase("saving", outcome_.step);
  wait_for_shard();
  if (saver_->in_flight()) MOTLEY_TRY_VOID(finish_save());
  if (saved_step_ == outcome_.step) return Unit{};
  MOTLEY_TRY_VOID(saver_->begin(outcome_.step));
  wait_for_shard();
  MOTLEY_TRY(const SaveOutcome saved, saver_->finish());
  if (!saved.committed)
    return joint_failure(world_, ErrorCode::kIo, "last checkpoint not saved: " + saved.error);
  saved_step_ = outcome_.step;
  outcome_.checkpoint = saved.report.directory;
  if (is_root()) reporter_.saved(saved.report);
  return Unit{};
}

Result<Unit> Trainer::finish() {
  MOTLEY_TRY_VOID(stepper_->finish());
  MOTLEY_TRY_VOID(save_now());
  if (outcome_.stopped) return count_what_it_took();
  if (attempt_.job.train.eval.samples > 0 && evaluated_step_ != outcome_.step)
    MOTLEY_TRY_VOID(evaluate());
  reporter_.phase("finishing", outcome_.step);
  MOTLEY_TRY(outcome_.weights_xxh3,
             weights_xxh3(*parts_->engine, attempt_.job.model, attempt_.plan.owners, world_));
  return count_what_it_took();
}

Result<Unit> Trainer::count_what_it_took() {
  log_info("counted memory, to the end: " + std::to_string(parts_->counted_memory().value()) +
           " bytes");
  int64_t counts[2] = {parts_->pacer.sections(), parts_->pacer.overruns()};
  MOTLEY_TRY_VOID(world_.all_reduce_sum(std::span<int64_t>(counts)));
  outcome_.paced = {.sections = counts[0], .overruns = counts[1]};
  return Unit{};
}

}  // namespace

Result<TrainOutcome> train(const Attempt& attempt, Communicator& world, Reporter& reporter,
                           ControlWishes& wishes, FileSystem& fs) {
  return Trainer(attempt, world, reporter, wishes, fs).run();
}

}  // namespace motley
