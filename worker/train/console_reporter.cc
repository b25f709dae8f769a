#include "worker/train/console_reporter.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "core/clock.h"
#include "core/json_fields.h"
#include "core/log.h"
#include "core/units.h"

namespace motley {
namespace {

constexpr Nanos kBetweenProgressLines{2'000'000'000};
constexpr Bytes kLargestMetrics{1LL << 32};

/// For the reader of the file only: no decision uses it.
double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string hex_of(uint64_t bits) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(bits));
  return text;
}

/// The complete lines of steps up to `step`.
std::string lines_up_to(const std::string& text, int64_t step) {
  std::istringstream lines(text);
  std::string kept;
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    const auto json = parse_json(line).value_or(nullptr);
    if (!json.is_object() || json.value("step", int64_t{0}) > step) break;
    kept += line + "\n";
  }
  return kept;
}

}  // namespace

ConsoleReporter::ConsoleReporter(const Attempt& attempt, int rank, FileSystem& fs)
    : attempt_(attempt),
      rank_(rank),
      speaks_(rank == 0),
      fs_(fs),
      path_(attempt.run_dir + "/metrics.jsonl"),
      statistics_(attempt.plan) {}

Result<Unit> ConsoleReporter::begin_after(int64_t step) {
  if (!speaks_) return Unit{};
  const auto before = read_text(fs_, path_, kLargestMetrics);
  if (!before && before.error().code != ErrorCode::kNotFound) return fail(before.error());
  MOTLEY_TRY_VOID(write_text_durably(fs_, path_, before ? lines_up_to(*before, step) : ""));
  metrics_.open(path_, std::ios::in | std::ios::out | std::ios::ate);
  if (!metrics_) return fail(ErrorCode::kIo, "cannot write " + path_);
  return Unit{};
}

void ConsoleReporter::step(const StepReport& report) {
  statistics_.add(report);
  if (!speaks_) return;
  nlohmann::json line{{"step", report.step},
                      {"time", unix_seconds()},
                      {"loss", report.loss},
                      {"loss_bits", hex_of(report.loss_bits)},
                      {"gradient_norm", report.gradient_norm},
                      {"learning_rate", report.learning_rate},
                      {"step_seconds", report.step_seconds},
                      {"special", report.special},
                      {"sections", report.sections},
                      {"overruns", report.overruns},
                      {"epoch", attempt_.epoch.value()}};
  metrics_ << line.dump() << '\n' << std::flush;
  last_step_ = report.step;
  note_lost_metrics();
  const bool last = report.step == attempt_.job.train.steps;
  const Nanos now = steady_clock().now();
  if (!last && now - last_progress_ < kBetweenProgressLines) return;
  last_progress_ = now;
  std::fprintf(stderr, "step %lld/%lld  loss %.4f  %s a step\n",
               static_cast<long long>(report.step),
               static_cast<long long>(attempt_.job.train.steps), report.loss,
               format_seconds(report.step_seconds).c_str());
}

void ConsoleReporter::note_lost_metrics() {
  if (metrics_) return;
  metrics_.clear();  // there may be room again for the next one
  last_step_ = -1;
  if (!std::exchange(metrics_lost_, true))
    log_warning("cannot write " + path_ + ": steps are missing in it");
}

void ConsoleReporter::saved(const SavedReport& report) {
  if (!report.error.empty()) return log_warning(not_saved_text(report));
  std::fprintf(stderr, "saved %s (%s)\n", report.directory.c_str(),
               format_bytes(report.bytes).c_str());
}

void ConsoleReporter::skipped(const SkippedReport& report) { log_warning(skipped_text(report)); }

void ConsoleReporter::evaluated(const EvaluatedReport& report) {
  if (report.step == last_step_) {
    metrics_.seekp(-2, std::ios::end);  // in front of "}\n": the step's line goes on
    metrics_ << ",\"eval_loss\":" << nlohmann::json(report.loss).dump() << "}\n" << std::flush;
    note_lost_metrics();
  }
  std::fprintf(stderr, "step %lld  evaluation loss %.4f\n", static_cast<long long>(report.step),
               report.loss);
}

}  // namespace motley
