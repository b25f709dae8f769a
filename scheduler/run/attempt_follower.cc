#include "scheduler/run/attempt_follower.h"

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/log.h"
#include "core/reports.h"
#include "scheduler/launch/worker_program.h"

namespace motley {
namespace {

constexpr double kSmoothing = 0.1;  // weight of the newest step in rates shown

double unix_seconds() {
  using namespace std::chrono;
  return duration<double>(system_clock::now().time_since_epoch()).count();
}

/// A mean that forgets.
class RunningMean {
 public:
  void add(double value) {
    mean_ = known_ ? mean_ + kSmoothing * (value - mean_) : value;
    known_ = true;
  }
  double value() const { return mean_; }

 private:
  double mean_ = 0;
  bool known_ = false;
};

class AttemptListener {
 public:
  AttemptListener(const Attempt& attempt, const AttemptOptions& options, ProgressLine& line)
      : attempt_(attempt), title_(options.title), line_(line), record_(attempt.plan) {
    if (!options.metrics_path.empty()) metrics_.emplace(options.metrics_path, attempt.epoch);
  }

  void on_line(const RunnerLine& line) {
    if (line.event == "phase") on_phase(line.data);
    if (line.event == "step") on_step(line.data);
    if (line.event == "evaluated") on_evaluated(line.data);
    if (line.event == "saved") on_saved(line.data);
    if (line.event == "skipped") on_skipped(line.data);
    if (line.event == "done") on_done(line.data);
  }

  void on_signal(int signal) {
    line_.note(signal == SIGINT && notified_ ? "ending now"
                                             : "stopping: saving a checkpoint (Ctrl-C: end now)");
    notified_ = true;
  }

  AttemptRecord take() { return std::move(record_); }

 private:
  /// Rank 0 knows from which checkpoint training goes on once it trains.
  void on_phase(const std::string& data) {
    const auto report = phase_report_from_text(data);
    if (!report || report->rank != 0 || report->phase != "training" || record_.began_after) return;
    record_.began_after = report->step;
    const std::string attempt = " (attempt " + std::to_string(attempt_.epoch.value()) + ")";
    if (report->step > 0)
      line_.note("continuing from step " + std::to_string(report->step) + attempt);
    else if (attempt_.epoch > Epoch(1))
      line_.note("starting from the beginning" + attempt);
  }

  void on_step(const std::string& data) {
    const auto report = step_report_from_text(data);
    if (!report) return log_warning(report.error().to_string());
    record_.statistics.add(*report);
    if (report->rank != 0) return;
    if (metrics_) keep(metrics_->add(*report, unix_seconds(), record_.statistics.paced()));
    show(*report);
  }

  void on_evaluated(const std::string& data) {
    const auto report = evaluated_report_from_text(data);
    if (!report) return;
    record_.eval_loss = report->loss;
    if (metrics_) keep(metrics_->add_evaluation(report->step, report->loss));
  }

  void on_saved(const std::string& data) {
    const auto report = saved_report_from_text(data);
    if (!report) return;
    if (report->error.empty())
      record_.saved_step = report->step;
    else
      line_.note("warning: " + not_saved_text(*report));
  }

  void on_skipped(const std::string& data) {
    if (const auto report = skipped_report_from_text(data)) line_.note(skipped_text(*report));
  }

  void on_done(const std::string& data) {
    const auto report = done_report_from_text(data);
    if (report && report->rank == 0) record_.weights_xxh3 = report->weights_xxh3;
  }

  /// Training goes on without its record; the first failure is said, the rest would repeat it.
  void keep(const Result<Unit>& written) {
    if (written || complained_) return;
    complained_ = true;
    line_.note("warning: " + written.error().to_string());
  }

  void show(const StepReport& report) {
    const Nanos now = steady_clock().now();
    if (last_step_ != Nanos(0)) wall_.add(seconds_of(now - last_step_));
    last_step_ = now;
    if (!report.special) step_.add(report.step_seconds);
    Progress progress;
    progress.step = report.step;
    progress.steps = attempt_.job.train.steps;
    progress.loss = report.loss;
    if (step_.value() > 0)
      progress.samples_per_second = attempt_.job.train.global_batch / step_.value();
    if (wall_.value() > 0)
      progress.seconds_left = wall_.value() * static_cast<double>(progress.steps - report.step);
    line_.show(title_ + progress_text(progress), report.step == progress.steps);
  }

  const Attempt& attempt_;
  const std::string title_;
  ProgressLine& line_;
  AttemptRecord record_;
  std::optional<MetricsLog> metrics_;
  RunningMean wall_;  ///< seconds between two reports here
  RunningMean step_;  ///< seconds of a step on the ranks' clock
  Nanos last_step_{0};
  bool notified_ = false;
  bool complained_ = false;
};

}  // namespace

Result<AttemptRecord> run_training_attempt(const Attempt& attempt, const AttemptOptions& options,
                                           SignalInbox& signals, ProgressLine& line) {
  FileSystem& fs = real_file_system();
  MOTLEY_TRY_VOID(fs.make_directories(options.directory));
  MOTLEY_TRY_VOID(write_text_durably(fs, options.directory + "/plan.json",
                                     to_json(attempt.plan).dump(1) + "\n"));
  RunnerClientOptions client;
  client.program = own_program();
  client.document = options.directory + "/attempt.json";
  client.rsh_agent = options.rsh_agent;
  client.lock_fd = options.lock_fd;
  MOTLEY_TRY_VOID(write_text_durably(fs, client.document, to_json(attempt).dump() + "\n"));
  MOTLEY_TRY(const auto runner, RunnerClient::start(client));
  AttemptListener listener(attempt, options, line);
  Followed followed = follow(
      *runner, signals, options.on_signal,
      [&](const RunnerLine& event) { listener.on_line(event); },
      [&](int signal) { listener.on_signal(signal); });
  line.finish();
  AttemptRecord record = listener.take();
  record.followed = std::move(followed);
  return record;
}

}  // namespace motley
