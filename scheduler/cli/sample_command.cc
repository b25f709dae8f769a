#include <cstdio>

#include "scheduler/cli/command.h"
#include "scheduler/run/sample.h"

namespace motley {
namespace {

class SampleCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("RUN", "a run: directory, name or name/n", &run_)
        .option("--bytes", "N", "how many (200)", &bytes_)
        .option("--prompt", "TEXT", "what to continue", &request_.prompt)
        .option("--rsh-agent", "PROGRAM", "used instead of ssh to reach other hosts",
                &request_.rsh_agent);
  }

  Result<int> run() override {
    MOTLEY_TRY(const RunDirectory run, RunDirectory::find(run_));
    if (bytes_) request_.bytes = *bytes_;
    MOTLEY_TRY(const std::string text, sample_text(run, request_));
    std::fputs(text.c_str(), stdout);
    return 0;
  }

 private:
  std::string run_;
  std::optional<int64_t> bytes_;
  SampleRequest request_;
};

}  // namespace

std::unique_ptr<Command> make_sample_command() { return std::make_unique<SampleCommand>(); }

}  // namespace motley
