#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/attempt_result.h"
#include "core/file_system.h"
#include "core/json_file.h"
#include "scheduler/cli/command.h"
#include "scheduler/report/diagnosis.h"
#include "scheduler/run/progress_file.h"
#include "scheduler/run/run_directory.h"
#include "scheduler/runner/assignment.h"
#include "scheduler/runner/program_assignment.h"

namespace motley {
namespace {

struct Told {
  AttemptResult result;
  Plan plan;
};

/// The attempt's; of a program that alone knows its global batch, which has none, where its ranks
/// are.
Plan plan_of(const std::string& attempt) {
  FileSystem& fs = real_file_system();
  if (const auto document = read_json_file(fs, attempt + "/plan.json", ErrorCode::kCorrupt))
    if (auto plan = plan_from_json(*document)) return *std::move(plan);
  Plan plan;
  if (const auto program = read_program(attempt + "/program.json"))
    plan.ranks = rank_for_each_device(program->fleet);
  return plan;
}

/// Of the attempt under way.
Told told_now(const RunDirectory& run) {
  Told told{{}, plan_of(run.attempt_directory(Epoch(run.last_epoch())))};
  const auto progress = read_progress(real_file_system(), run.file("progress.json"));
  if (!progress) return told;
  for (const RankProgress& now : progress->ranks) {
    RankActual& rank = told.result.ranks.emplace_back();
    rank.rank = now.rank;
    rank.device = now.device;
    rank.compute_seconds = now.compute_seconds;
    rank.wait_seconds = now.wait_seconds;
    rank.update_seconds = now.update_seconds;
    rank.input_seconds = now.input_seconds;
  }
  return told;
}

/// Of the newest attempt that got so far.
Told told_of(const RunDirectory& run) {
  if (run.in_use()) return told_now(run);
  for (int epoch = run.last_epoch(); epoch > 0; --epoch) {
    const std::string attempt = run.attempt_directory(Epoch(epoch));
    if (auto ended = read_attempt_result(real_file_system(), attempt))
      return {*std::move(ended), plan_of(attempt)};
  }
  return told_now(run);
}

class DiagnoseCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("RUN", "a run: directory, name or name/n", &run_)
        .completes_runs()
        .flag("--json", "one JSON object", &json_);
  }

  Result<int> run() override {
    MOTLEY_TRY(const RunDirectory run, RunDirectory::find(run_));
    MOTLEY_TRY(const JobSpec job, run.job());
    const Told told = told_of(run);
    MOTLEY_TRY(const Diagnosis found, diagnose(told.result, told.plan));
    const bool program = job.is_program();
    std::printf("%s", json_ ? (to_json(found, told.plan, program).dump() + "\n").c_str()
                            : diagnosis_text(found, told.plan, program).c_str());
    return 0;
  }

 private:
  std::string run_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_diagnose_command() { return std::make_unique<DiagnoseCommand>(); }

}  // namespace motley
