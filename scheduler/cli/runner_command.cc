// `motley runner`: one attempt; `motley rank`: a rank of one. Not started by people.

#include <cstdio>

#include "scheduler/cli/command.h"
#include "scheduler/launch/worker_program.h"
#include "scheduler/run/program_rank.h"
#include "scheduler/runner/assignment.h"
#include "scheduler/runner/program_shell.h"
#include "scheduler/runner/runner_line.h"
#include "scheduler/runner/runner_shell.h"

namespace motley {
namespace {

class RunnerCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.option("--attempt", "FILE", "train as this document says", &attempt_)
        .option("--profile", "FILE", "measure as this document says", &profile_)
        .option("--program", "FILE", "run a program as this document says", &program_)
        .option("--rsh-agent", "PROGRAM", "used instead of ssh", &options_.rsh_agent);
  }

  Result<int> run() override {
    if (!attempt_.empty() + !profile_.empty() + !program_.empty() != 1)
      return fail(ErrorCode::kUsage, "runner takes one of --attempt, --profile and --program");
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
    if (!program_.empty())
      return run_program_attempt(*mpirun_launcher(), own_program(), program_, options_);
    const AssignmentKind kind =
        attempt_.empty() ? AssignmentKind::kProfile : AssignmentKind::kTrain;
    MOTLEY_TRY(Assignment assignment,
               read_assignment(kind, attempt_.empty() ? profile_ : attempt_));
    return run_attempt(*mpirun_launcher(), std::move(assignment), options_);
  }

  std::string attempt_, profile_, program_;
  RunnerOptions options_;
};

/// What mpirun starts for each rank of a program.
class RankCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("FILE", "of the attempt", &document_)
        .flag("--setup", "what the job wants done before", &setup_);
  }
  Result<int> run() override {
    if (!setup_) return run_program_rank(document_);
    MOTLEY_TRY_VOID(run_program_setup(document_));
    return 0;
  }

 private:
  std::string document_;
  bool setup_ = false;
};

}  // namespace

std::unique_ptr<Command> make_rank_command() { return std::make_unique<RankCommand>(); }
std::unique_ptr<Command> make_runner_command() { return std::make_unique<RunnerCommand>(); }

}  // namespace motley
