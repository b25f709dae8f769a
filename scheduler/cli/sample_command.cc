#include <cstdio>
#include <nlohmann/json.hpp>

#include "scheduler/cli/command.h"
#include "scheduler/run/sample.h"

namespace motley {
namespace {

class SampleCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("RUN", "a run: directory, name or name/n", &run_)
        .completes_runs()
        .option("--bytes", "N", "how many (200)", &bytes_)
        .flag("--json", "one JSON object: run, prompt, text", &json_)
        .option("--prompt", "TEXT", "what to continue", &request_.prompt)
        .option("--rsh-agent", "PROGRAM", "used instead of ssh to reach other hosts",
                &request_.rsh_agent);
  }

  Result<int> run() override {
    if (bytes_) request_.bytes = *bytes_;
    if (request_.bytes < 1 || request_.bytes > kMostSampledBytes)
      return fail(ErrorCode::kUsage, "--bytes takes a number from 1 to " +
                                         std::to_string(kMostSampledBytes) + ", not " +
                                         std::to_string(request_.bytes));
    MOTLEY_TRY(const RunDirectory run, RunDirectory::find(run_));
    MOTLEY_TRY(std::string text, sample_text(run, request_));
    if (json_) {
      text.pop_back();  // the line end that sample_text() adds
      const nlohmann::json object = {
          {"run", run.title()}, {"prompt", request_.prompt}, {"text", text}};
      text = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    }
    std::fputs(text.c_str(), stdout);
    return 0;
  }

 private:
  std::string run_;
  std::optional<int64_t> bytes_;
  SampleRequest request_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_sample_command() { return std::make_unique<SampleCommand>(); }

}  // namespace motley
