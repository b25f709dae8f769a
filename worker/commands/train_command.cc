#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "comm/launch_env.h"
#include "comm/watched.h"
#include "core/attempt.h"
#include "core/attempt_result.h"
#include "core/json_file.h"
#include "core/log.h"
#include "core/output.h"
#include "core/run_layout.h"
#include "worker/commands/commands.h"
#include "worker/train/agreement.h"
#include "worker/train/console_reporter.h"
#include "worker/train/directory_lock.h"
#include "worker/train/link_reporter.h"
#include "worker/train/manual_attempt.h"
#include "worker/train/stop_signals.h"
#include "worker/train/trainer.h"
#include "worker/train/world.h"

namespace motley {
namespace {

struct TrainOptions {
  std::string attempt;
  ManualAttemptFiles files;
  bool trace = false;
  int ranks = 0;  ///< as threads of this process; 0: those of the launch
};

ControlWishes& process_wishes() {  // signal handlers outlive any scope
  static ControlWishes wishes;
  return wishes;
}

DoneReport last_words(const Result<TrainOutcome>& outcome, int rank) {
  DoneReport done;
  done.rank = rank;
  if (!outcome) {
    done.code = outcome.error().code;
    done.message = outcome.error().message;
    return done;
  }
  done.outcome = outcome->stopped ? Outcome::kStopped : Outcome::kFinished;
  if (rank == 0) done.weights_xxh3 = outcome->weights_xxh3;
  return done;
}

/// On rank 0, for as long as the result lives; all ranks fail when somebody else has it.
Result<std::unique_ptr<DirectoryLock>> take_lock(Communicator& world,
                                                 const std::string& directory) {
  std::unique_ptr<DirectoryLock> lock;
  Result<Unit> locked = Unit{};
  if (world.rank() == 0) {
    auto taken = DirectoryLock::take(directory);
    if (taken) lock = std::move(*taken);
    if (!taken) locked = fail(taken.error());
  }
  MOTLEY_TRY_VOID(all_succeeded(world, locked));
  return lock;
}

/// The run's own directory is locked already; the place that a job chose for its checkpoints may be
/// the choice of another run too.
Result<TrainOutcome> train_alone(const Attempt& attempt, Communicator& world, Reporter& reporter) {
  std::unique_ptr<DirectoryLock> lock;
  const CheckpointSpec& checkpoint = attempt.job.checkpoint;
  if (!checkpoint.dir.empty()) {
    MOTLEY_TRY(lock, take_lock(world, checkpoints_directory(attempt.run_dir, checkpoint)));
  }
  return train(attempt, world, reporter, process_wishes());
}

/// Under a runner, which judges the outcome by the reports.
Result<TrainOutcome> train_for_runner(const Attempt& attempt, Communicator& world) {
  MOTLEY_TRY(const auto link, join_runner(world, attempt.control, attempt.key_file, attempt.epoch,
                                          &process_wishes()));
  LinkReporter reporter(*link, world.rank());
  const auto told = watched(world, link->waiting());
  const auto outcome = train_alone(attempt, *told, reporter);
  link->send_done(last_words(outcome, world.rank()));
  return outcome;
}

/// What a runner's side would have heard. Collective; a report that lacks it is no reason to fail.
Result<Unit> keep_result(const Attempt& attempt, Communicator& world, const RankActual& mine,
                         const TrainOutcome& outcome) {
  MOTLEY_TRY(const std::vector<std::string> all, world.all_gather(to_json(mine).dump()));
  if (world.rank() != 0) return Unit{};
  AttemptResult result{.ranks = {}, .least_wait_seconds = {}, .weights_xxh3 = outcome.weights_xxh3};
  for (const std::string& text : all) {
    MOTLEY_TRY(RankActual rank, rank_actual_from_json(nlohmann::json::parse(text)));
    result.ranks.push_back(std::move(rank));
  }
  const std::string directory = attempt_directory(attempt.run_dir, attempt.epoch);
  const auto kept = write_attempt_result(real_file_system(), directory, result);
  if (!kept) log_warning(kept.error().to_string());
  return Unit{};
}

Result<TrainOutcome> train_by_hand(const Attempt& attempt, Communicator& world) {
  stop_on_signals(&process_wishes());
  if (launch_env()) die_with_parent();
  ConsoleReporter reporter(attempt, world.rank(), real_file_system());
  MOTLEY_TRY(const TrainOutcome outcome, train_alone(attempt, world, reporter));
  MOTLEY_TRY_VOID(keep_result(attempt, world, reporter.actual(), outcome));
  // Of a run that goes on later nothing is concluded yet.
  if (!outcome.stopped && !outcome.paced.trustworthy())
    return fail(ErrorCode::kRunFailed, untrustworthy_text(outcome.paced));
  return outcome;
}

Result<Attempt> read_attempt(Communicator& world, const std::string& path) {
  MOTLEY_TRY(const std::string text, shared_text(world, path));
  MOTLEY_TRY(const auto document, parse_json_file(text, path, ErrorCode::kInvalidSpec));
  return attempt_from_json(document);
}

Result<TrainOutcome> run_in(Communicator& world, const TrainOptions& options) {
  if (!options.attempt.empty()) {
    MOTLEY_TRY(Attempt attempt, read_attempt(world, options.attempt));
    attempt.trace |= options.trace;
    if (!attempt.control.empty()) return train_for_runner(attempt, world);
    MOTLEY_TRY(const auto lock, take_lock(world, attempt.run_dir));
    return train_by_hand(attempt, world);
  }
  MOTLEY_TRY(Attempt attempt, read_manual_attempt(world, options.files));
  MOTLEY_TRY(const auto lock, take_lock(world, attempt.run_dir));
  MOTLEY_TRY_VOID(begin_manual_attempt(world, real_file_system(), &attempt));
  attempt.trace = options.trace;
  return train_by_hand(attempt, world);
}

std::string ending_of(const TrainOutcome& outcome) {
  const std::string step = std::to_string(outcome.step);
  if (outcome.stopped)
    return "stopped after step " + step + " with checkpoint " + outcome.checkpoint +
           ": run again to go on";
  return "finished after step " + step + ", weights " + outcome.weights_xxh3;
}

Result<Unit> end_well(const TrainOutcome& outcome) {
  if (outcome.stopped) return fail(ErrorCode::kStopped, "");
  return Unit{};
}

Result<Unit> train_in_threads(const TrainOptions& options) {
  TrainOutcome of_root;
  MOTLEY_TRY_VOID(run_in_threads(options.ranks, [&](Communicator& world) -> Result<Unit> {
    MOTLEY_TRY(const TrainOutcome outcome, run_in(world, options));
    if (world.rank() == 0) of_root = outcome;
    return Unit{};
  }));
  std::fprintf(stderr, "%s\n", ending_of(of_root).c_str());
  return end_well(of_root);
}

Result<Unit> run_train(const TrainOptions& options) {
  if (options.ranks > 0) return train_in_threads(options);
  MOTLEY_TRY(auto world, open_world());
  configure_log("rank " + std::to_string(world->rank()));
  const auto outcome = without_exceptions([&] { return run_in(*world, options); });
  if (!outcome) leave_world(std::move(world), outcome.error());
  // While all are here: mpirun ends the others with the first that exits with another status than
  // 0.
  if (world->rank() == 0) std::fprintf(stderr, "%s\n", ending_of(*outcome).c_str());
  world.reset();  // all ranks leave together before any of them exits
  return end_well(*outcome);
}

}  // namespace

void add_train_command(CLI::App& app, Result<Unit>* outcome) {
  auto* command = app.add_subcommand(
      "train", "Trains under mpirun: one attempt of a run, or by hand from a job and a plan");
  auto options = std::make_shared<TrainOptions>();
  auto* attempt = command->add_option("--attempt", options->attempt, "attempt.json, from a runner");
  auto* job = command->add_option("--job", options->files.job,
                                  "job.json, as `motley export job` writes it");
  auto* plan = command->add_option("--plan", options->files.plan, "The plan of `motley plan -o`");
  auto* run_dir = command->add_option("--run-dir", options->files.run_dir,
                                      "Where checkpoints and metrics go; a run in it goes on");
  command
      ->add_option("--resume", options->files.resume,
                   "newest (default), none, or the name of a checkpoint")
      ->excludes(attempt);
  command->add_flag("--trace", options->trace,
                    "Each rank writes what its time went on beside its attempt's plan, the last "
                    "100,000 events (core/FORMATS.md)");
  command
      ->add_option("--ranks", options->ranks,
                   "So many ranks as threads of this process, instead of under mpirun")
      ->check(CLI::PositiveNumber);
  job->needs(plan)->needs(run_dir)->excludes(attempt);
  plan->needs(job);
  run_dir->needs(job);
  command->callback([=] {
    if (options->attempt.empty() && options->files.job.empty())
      throw CLI::ValidationError("train", "give --attempt, or --job, --plan and --run-dir");
    *outcome = run_train(*options);
  });
}

}  // namespace motley
