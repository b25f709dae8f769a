#include "scheduler/run/sample.h"

#include "core/ids.h"
#include "scheduler/launch/command.h"
#include "scheduler/launch/remote_hosts.h"
#include "scheduler/launch/worker_program.h"

namespace motley {
namespace {

constexpr double kSecondsPerByte = 1;  // generous: a large model on one CPU
constexpr double kStartSeconds = 120;

/// Empty: here.
std::string host_with_checkpoints(const RunDirectory& run) {
  const auto job = run.job();
  const auto plan = run.plan();
  if ((job && !run.committed(*job).empty()) || !plan) return "";
  const auto remote = remote_hosts({plan->ranks.front()});
  return remote.empty() ? "" : remote.front();
}

}  // namespace

Result<std::string> sample_text(const RunDirectory& run, const SampleRequest& request) {
  MOTLEY_TRY(const std::string worker, worker_program());
  std::vector<std::string> words = {worker,     "sample",  "--run-dir",
                                    run.path(), "--bytes", std::to_string(request.bytes)};
  if (!request.prompt.empty()) words.insert(words.end(), {"--prompt", request.prompt});
  if (const std::string host = host_with_checkpoints(run); !host.empty()) {
    std::string command;
    for (const std::string& word : words) command += shell_quoted(word) + " ";
    words = remote_command(request.rsh_agent, host, command);
  }
  const Nanos limit =
      nanos_of_seconds(kStartSeconds + kSecondsPerByte * static_cast<double>(request.bytes));
  MOTLEY_TRY(const CommandOutput output, run_command({words, ""}, limit));
  if (output.timed_out) return fail(ErrorCode::kRunFailed, "sampling took too long");
  if (!output.status.ok())
    return fail(error_code_of_exit(output.status.status), last_words_of_worker(output.err));
  return output.out;
}

}  // namespace motley
