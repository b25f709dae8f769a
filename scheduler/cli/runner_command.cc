// `motley runner`: one attempt. Started by `motley run`, not by people.

#include <cstdio>

#include "scheduler/cli/command.h"
#include "scheduler/launch/worker_program.h"
#include "scheduler/runner/assignment.h"
#include "scheduler/runner/runner_line.h"
#include "scheduler/runner/runner_shell.h"

namespace motley {
namespace {

class RunnerCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.option("--attempt", "FILE", "train as this document says", &attempt_)
        .option("--profile", "FILE", "measure as this document says", &profile_)
        .option("--rsh-agent", "PROGRAM", "used instead of ssh", &options_.rsh_agent);
  }

  Result<int> run() override {
    if (attempt_.empty() == profile_.empty())
      return fail(ErrorCode::kUsage, "runner takes one of --attempt and --profile");
    // Whoever started us reads lines, not messages.
    if (const auto outcome = attempt(); !outcome) {
      const AttemptEnd end{Outcome::kFailed, outcome.error(), -1};
      std::printf("%s\n", to_text({"ended", to_json_text(end)}).c_str());
    }
    return 0;
  }

 private:
  Result<Unit> attempt() {
    MOTLEY_TRY(options_.worker, worker_program());
    const AssignmentKind kind =
        attempt_.empty() ? AssignmentKind::kProfile : AssignmentKind::kTrain;
    MOTLEY_TRY(Assignment assignment,
               read_assignment(kind, attempt_.empty() ? profile_ : attempt_));
    return run_attempt(*mpirun_launcher(), std::move(assignment), options_);
  }

  std::string attempt_, profile_;
  RunnerOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_runner_command() { return std::make_unique<RunnerCommand>(); }

}  // namespace motley
