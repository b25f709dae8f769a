#include "scheduler/service/perform_attempt.h"

#include <unistd.h>

#include "core/output.h"
#include "scheduler/run/run_job.h"
#include "scheduler/service/attempt_files.h"

namespace motley {
namespace {

/// Of the job's newest checkpoint; 0 without one.
int64_t saved_step(const JobSpec& job) {
  const auto run = RunDirectory::find(job.name);
  if (!run) return 0;
  const auto committed = run->committed(job);
  return committed.empty() ? 0 : committed.front().step;
}

RunOptions options_of(const AttemptOrder& order) {
  RunOptions options;
  options.job = order.job;
  options.fleet = order.fleet;
  options.compare = false;  // the devices are for training
  options.again = "motley release " + std::to_string(order.id.job);
  return options;
}

}  // namespace

Result<int> perform_attempt(const std::string& directory) {
  const AttemptFiles files(directory);
  MOTLEY_TRY(const AttemptOrder order, files.order());
  const auto process = identity_of(::getpid());
  if (!process) return fail(ErrorCode::kIo, "cannot read our own entry of /proc");
  const AttemptBegun begun{*process, saved_step(order.job)};
  MOTLEY_TRY(const bool ours, files.claim(begun));
  if (!ours) return 0;
  const Result<int> status = without_exceptions([&] { return run_job(options_of(order)); });
  AttemptEnded ended;
  ended.status = status ? *status : exit_code(status.error().code);
  ended.cause = status ? "" : status.error().to_string();
  ended.progressed = ended.status == 0 || saved_step(order.job) > begun.saved_step;
  MOTLEY_TRY_VOID(files.write_end(ended));
  return status;
}

}  // namespace motley
