#include "scheduler/cli/command.h"
#include "scheduler/run/run_output.h"

namespace motley {
namespace {

class ReportCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("RUN", "a run: directory, name or name/n", &run_)
        .flag("--json", "one JSON object", &json_);
  }

  Result<int> run() override {
    MOTLEY_TRY(const RunDirectory run, RunDirectory::find(run_));
    const auto summary = read_summary(run);
    if (!summary && summary.error().code == ErrorCode::kNotFound)
      return fail(ErrorCode::kNotFound,
                  "run " + run.title() + " has no report yet; it is written when the run ends");
    if (!summary) return fail(summary.error());
    const RunOutput out(json_);
    if (json_) {
      out.json(*summary);
      return 0;
    }
    MOTLEY_TRY(const Plan plan, run.plan());
    out.report(*summary, plan);
    MOTLEY_TRY_VOID(out.losses(run));
    return 0;
  }

 private:
  std::string run_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_report_command() { return std::make_unique<ReportCommand>(); }

}  // namespace motley
