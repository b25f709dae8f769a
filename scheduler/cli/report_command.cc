#include "scheduler/cli/command.h"
#include "scheduler/launch/remote_hosts.h"
#include "scheduler/run/run_output.h"
#include "scheduler/run/summarize.h"

namespace motley {
namespace {

class ReportCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("RUN", "a run: directory, name or name/n", &run_)
        .completes_runs()
        .flag("--json", "one JSON object", &json_);
  }

  Result<int> run() override {
    MOTLEY_TRY(const RunDirectory run, RunDirectory::find(run_));
    MOTLEY_TRY(const RunSummary summary, summary_of(run));
    RunOutput out(json_);
    if (json_) {
      out.json(summary);
      return 0;
    }
    const auto plan = run.plan();
    out.report(summary, plan ? *plan : Plan());
    MOTLEY_TRY_VOID(out.losses(run));
    if (summary.state == "interrupted" && run.fleet())  // one by hand has its own mpirun line
      out.note("to continue: " + shell_command({"motley", "resume", run.title()}));
    return 0;
  }

 private:
  std::string run_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_report_command() { return std::make_unique<ReportCommand>(); }

}  // namespace motley
