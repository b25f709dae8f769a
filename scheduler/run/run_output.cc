#include "scheduler/run/run_output.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/json_file.h"
#include "scheduler/report/loss_curves.h"
#include "scheduler/report/plan_table.h"
#include "scheduler/report/report_text.h"
#include "scheduler/run/metrics_log.h"
#include "scheduler/run/terminal.h"

namespace motley {
namespace {

/// Of the terminal that stdout or stderr is; 80 where it is none.
int plot_columns() {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    const int columns = terminal_columns(fd).value_or(0);
    if (columns >= 20) return std::min(columns, 120);
  }
  return 80;
}

}  // namespace

RunOutput::RunOutput(bool json) : json_(json) {}

void RunOutput::print_block(const std::string& text) {
  std::FILE* to = json_ ? stderr : stdout;
  if (std::exchange(begun_, true)) std::fputs("\n", to);
  std::fputs(text.c_str(), to);
  std::fflush(to);
}

void RunOutput::note(const std::string& text) const { std::fprintf(stderr, "%s\n", text.c_str()); }

void RunOutput::solo_speeds(const Profile& profile, const Plan& plan, const ModelSpec& model) {
  print_block(
      solo_table(motley::solo_speeds(profile, plan, model), weakest_evidence(profile, plan)));
}

void RunOutput::plan(const Profile& profile, const Plan& plan) {
  print_block(plan_table(plan, weakest_evidence(profile, plan)));
}

void RunOutput::report(const RunSummary& summary, const Plan& plan) {
  print_block(report_text(summary, plan));
}

void RunOutput::sample(const std::string& text) { print_block("sample:\n" + text); }

Result<Unit> RunOutput::losses(const RunDirectory& run) {
  LossCurves curves;
  curves.title = run.title();
  for (const MetricsRow& row : read_metrics(run.file("metrics.jsonl"))) {
    curves.train.push_back({row.step, row.loss});
    if (row.eval_loss) curves.held_out.push_back({row.step, *row.eval_loss});
  }
  MOTLEY_TRY_VOID(run.write("loss.svg", loss_svg(curves)));
  print_block(loss_plot(curves, {plot_columns(), 12, true}) + "drawn in " + run.file("loss.svg") +
              "\n");
  return Unit{};
}

void RunOutput::json(const RunSummary& summary) const {
  if (!json_) return;
  std::printf("%s\n", to_json(summary).dump().c_str());
  std::fflush(stdout);
}

Result<RunSummary> read_summary(const RunDirectory& run) {
  MOTLEY_TRY(const auto document,
             read_json_file(real_file_system(), run.file("report.json"), ErrorCode::kCorrupt));
  return run_summary_from_json(document);
}

}  // namespace motley
