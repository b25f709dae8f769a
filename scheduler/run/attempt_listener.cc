#include "scheduler/run/attempt_listener.h"

#include <csignal>

#include "core/clock.h"
#include "core/file_system.h"
#include "core/log.h"
#include "core/reports.h"

namespace motley {

AttemptListener::AttemptListener(const Attempt& attempt, const AttemptOptions& options,
                                 ProgressLine& line)
    : attempt_(attempt),
      options_(options),
      line_(line),
      record_(attempt.plan),
      tracker_(attempt, unix_seconds()) {
  if (!options.metrics_path.empty()) metrics_.emplace(options.metrics_path, attempt.epoch);
  if (!options.progress_path.empty())
    file_.emplace(real_file_system(), steady_clock(), options.progress_path);
  keep_progress();
}

void AttemptListener::enter(const std::string& phase) {
  tracker_.add(PhaseReport{.rank = 0, .phase = phase, .detail = "", .step = 0});
  if (file_) file_->write(tracker_.with_ranks());
}

void AttemptListener::on_line(const RunnerLine& line) {
  if (line.event == "phase") on_phase(line.data);
  if (line.event == "step") on_step(line.data);
  if (line.event == "evaluated") on_evaluated(line.data);
  if (line.event == "saved") on_saved(line.data);
  if (line.event == "skipped") on_skipped(line.data);
  if (line.event == "done") on_done(line.data);
}

void AttemptListener::on_signal(int signal) {
  line_.note(signal == SIGINT && notified_ ? "ending now"
                                           : "stopping: saving a checkpoint (Ctrl-C: end now)");
  notified_ = true;
}

/// Rank 0 knows from which checkpoint training goes on once it trains.
void AttemptListener::on_phase(const std::string& data) {
  const auto report = phase_report_from_text(data);
  if (report) tracker_.add(*report);
  keep_progress();
  if (!report || report->rank != 0 || report->phase != "training" || record_.began_after) return;
  record_.began_after = report->step;
  if (!options_.shows_steps) return;
  const std::string attempt = " (attempt " + std::to_string(attempt_.epoch.value()) + ")";
  if (report->step > 0)
    line_.note("continuing from step " + std::to_string(report->step) + attempt);
  else if (attempt_.epoch > Epoch(1))
    line_.note("starting from the beginning" + attempt);
}

void AttemptListener::on_step(const std::string& data) {
  const auto report = step_report_from_text(data);
  if (!report) return log_warning(report.error().to_string());
  record_.statistics.add(*report);
  tracker_.add(*report, steady_clock().now());
  keep_progress();
  if (report->rank != 0) return;
  if (metrics_) keep(metrics_->add(*report, unix_seconds(), record_.statistics.paced()));
  if (!options_.shows_steps) return;
  const RunProgress& progress = tracker_.so_far();
  line_.show(options_.title + progress_text(progress), progress.step == progress.steps);
}

void AttemptListener::on_evaluated(const std::string& data) {
  const auto report = evaluated_report_from_text(data);
  if (!report) return;
  record_.eval_loss = report->loss;
  if (metrics_) keep(metrics_->add_evaluation(report->step, report->loss));
}

void AttemptListener::on_saved(const std::string& data) {
  const auto report = saved_report_from_text(data);
  if (!report) return;
  if (report->error.empty())
    record_.saved_step = report->step;
  else
    line_.note("warning: " + not_saved_text(*report));
}

void AttemptListener::on_skipped(const std::string& data) {
  if (const auto report = skipped_report_from_text(data)) line_.note(skipped_text(*report));
}

void AttemptListener::on_done(const std::string& data) {
  const auto report = done_report_from_text(data);
  if (report && report->rank == 0) record_.weights_xxh3 = report->weights_xxh3;
}

/// Training goes on without its record; the first failure is said, the rest would repeat it.
void AttemptListener::keep(const Result<Unit>& written) {
  if (written || complained_) return;
  complained_ = true;
  line_.note("warning: " + written.error().to_string());
}

void AttemptListener::keep_progress() {
  if (file_) file_->offer([this] { return tracker_.with_ranks(); });
}

}  // namespace motley
