#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "scheduler/cli/command.h"
#include "scheduler/report/diagnosis.h"
#include "scheduler/run/progress_file.h"
#include "scheduler/run/run_directory.h"

namespace motley {
namespace {

/// Of the attempt under way.
std::vector<RankActual> ranks_now(const RunDirectory& run) {
  std::vector<RankActual> ranks;
  const auto progress = read_progress(real_file_system(), run.file("progress.json"));
  if (!progress) return ranks;
  for (const RankProgress& now : progress->ranks) {
    RankActual& rank = ranks.emplace_back();
    rank.rank = now.rank;
    rank.device = now.device;
    rank.compute_seconds = now.compute_seconds;
    rank.wait_seconds = now.wait_seconds;
    rank.update_seconds = now.update_seconds;
    rank.input_seconds = now.input_seconds;
  }
  return ranks;
}

/// The attempt's; of a program that alone knows its global batch, which has none, where its ranks
/// are.
Plan plan_of(const RunDirectory& run, const std::vector<RankActual>& ranks) {
  if (auto plan = run.plan()) return *std::move(plan);
  Plan plan;
  const auto fleet = run.fleet();
  for (const RankActual& rank : ranks) {
    const DeviceSpec* device = fleet ? fleet->find(rank.device) : nullptr;
    plan.ranks.push_back({rank.device, device ? device->host : "", device ? device->type : ""});
  }
  return plan;
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
    const std::vector<RankActual> ranks = ranks_of(run);
    const Plan plan = plan_of(run, ranks);
    MOTLEY_TRY(const Diagnosis found, diagnose(ranks, plan));
    std::printf("%s", json_ ? (to_json(found, plan).dump() + "\n").c_str()
                            : diagnosis_text(found, plan).c_str());
    return 0;
  }

 private:
  static std::vector<RankActual> ranks_of(const RunDirectory& run) {
    if (run.in_use()) return ranks_now(run);
    const std::string last = run.attempt_directory(Epoch(run.last_epoch()));
    auto ended = read_attempt_result(real_file_system(), last);
    return ended ? std::move(ended->ranks) : ranks_now(run);
  }

  std::string run_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_diagnose_command() { return std::make_unique<DiagnoseCommand>(); }

}  // namespace motley
