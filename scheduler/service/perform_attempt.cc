#include "scheduler/service/perform_attempt.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "core/clock.h"
#include "core/file_system.h"
#include "core/output.h"
#include "scheduler/launch/worker_program.h"
#include "scheduler/run/fork_run.h"
#include "scheduler/run/measure.h"
#include "scheduler/run/run_job.h"
#include "scheduler/run/run_program.h"
#include "scheduler/service/attempt_files.h"

namespace motley {
namespace {

int64_t saved_step_of(const JobSpec& job) {
  const auto run = RunDirectory::find(job.name);
  return run ? saved_step(*run, job) : 0;
}

/// Of the run's attempts that are still to come.
int first_epoch(const JobSpec& job) {
  const auto run = RunDirectory::find(job.name);
  return run ? run->last_epoch() + 1 : 1;
}

/// A request to stop that comes early waits for run_job(), which looks for it.
void hold_back_stops() {
  sigset_t stops;
  ::sigemptyset(&stops);
  ::sigaddset(&stops, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &stops, nullptr);
}

/// The run of a job that goes on from another one's checkpoint. It is made once, with a copy: from
/// then on it is the job's own. A checkpoint that is damaged is passed over for the one before,
/// unless it is the one that was asked for.
Result<Unit> begin_from(const AttemptOrder& order, ProgressLine& line) {
  const Resumes& resumes = order.job.service.resumes;
  if (resumes.job == 0) return Unit{};
  MOTLEY_TRY(const auto own, RunDirectory::newest(order.job));
  if (own) return Unit{};
  const std::string whose = "job " + std::to_string(resumes.job);
  if (order.from.empty())
    return fail(ErrorCode::kNotFound, whose + ", from which it is to go on, is kept no longer");
  MOTLEY_TRY(const RunDirectory from, RunDirectory::find(order.from));
  for (const CheckpointName& name : from.committed(order.job)) {
    if (resumes.step > 0 && name.step != resumes.step) continue;
    const auto begun = fork_run(from, order.job, name.step);
    if (begun) {
      line.note("going on from step " + std::to_string(name.step) + " of " + whose);
      return Unit{};
    }
    if (begun.error().code != ErrorCode::kCorrupt || resumes.step > 0) return fail(begun.error());
    line.note("warning: " + begun.error().to_string());
  }
  return fail(ErrorCode::kNotFound, whose + " has no checkpoint that is whole");
}

/// Whether it would fail the same way again: what is the job's own fault, and what a run tries
/// again by itself, as often as the job allows. A full disk, or a worker that is missing, is
/// neither.
bool is_hopeless(ErrorCode code) {
  switch (code) {
    case ErrorCode::kIo:
    case ErrorCode::kNoDevice:
    case ErrorCode::kNotPermitted:
    case ErrorCode::kBrokenInstall:
    case ErrorCode::kInternal:
      return false;
    default:
      return true;
  }
}

/// Whether it is the devices that will not do. Once it has been launched on them, a plan that is
/// missing is one for those that were left.
bool needs_others(ErrorCode code, bool launched) {
  return code == ErrorCode::kOutOfMemory || (code == ErrorCode::kNoPlan && !launched);
}

/// What mpirun and we start on other nodes is started by their agents: `motley rsh` knows the
/// attempt by our environment. Without daemons that detach themselves nothing outlives it there.
std::string reach_agents(const std::string& directory) {
  ::setenv("MOTLEY_ATTEMPT", directory.c_str(), 1);
  ::setenv("OMPI_MCA_orte_leave_session_attached", "1", 0);
  return own_program() + " rsh --";
}

/// What its owner may type; nothing where it goes on by itself, or cannot.
std::string again_after(StopWhy why, int64_t job, bool saved) {
  if (why == StopWhy::kHold) return "motley release " + std::to_string(job);
  const bool has_ended = why == StopWhy::kCancel || why == StopWhy::kTimeLimit;
  return has_ended && saved ? "motley resume " + std::to_string(job) : "";
}

RunOptions options_of(const AttemptOrder& order, const std::string& directory) {
  RunOptions options;
  if (!order.agents.empty()) options.rsh_agent = reach_agents(directory);
  options.job = order.job;
  options.fleet = order.fleet;
  options.log_limit = order.log_limit;
  options.compare = false;  // the devices are for training
  options.served = true;
  options.again = [files = AttemptFiles(directory), job = order.id.job](bool saved) {
    return again_after(files.stop(), job, saved);
  };
  return options;
}

/// Of one that does not hold the whole model as if it did: each block takes what the one measured
/// did.
double samples_per_second(const DeviceProfile& device, const JobSpec& job) {
  if (device.curve("model") != nullptr) return device.best_speed();
  double seconds = 0;  // a sample
  for (const LayerCurve& layer : device.curves) {
    if (layer.share != 1 || layer.recompute != Recompute::kNone) continue;
    double best = std::numeric_limits<double>::infinity();
    for (const CurvePoint& point : layer.points)
      best = std::min(best, point.seconds / point.micro_batch);
    seconds += best * (layer.layer == "block" ? job.model.layers : 1);
  }
  return seconds > 0 ? 1 / seconds : 0;
}

/// Samples a second of each device, by its id.
Result<std::map<std::string, double>> measure_devices(const AttemptOrder& order,
                                                      const std::string& directory,
                                                      ProgressLine& line) {
  MeasureOptions options;
  if (!order.agents.empty()) options.rsh_agent = reach_agents(directory);
  SignalInbox signals;
  MOTLEY_TRY(const Profile profile, obtain_profile(order.job, order.fleet, options, signals, line));
  std::map<std::string, double> speeds;
  for (const DeviceProfile& device : profile.devices)
    speeds[device.device] = samples_per_second(device, order.job);
  return speeds;
}

Result<int> perform(const AttemptOrder& order, const std::string& directory,
                    std::map<std::string, double>* speeds) {
  ProgressLine line(steady_clock());
  if (order.measure) {
    MOTLEY_TRY(*speeds, measure_devices(order, directory, line));
    return 0;
  }
  MOTLEY_TRY_VOID(begin_from(order, line));
  return run_job(options_of(order, directory));
}

AttemptEnded end_of(const Result<int>& status, bool launched,
                    std::map<std::string, double> speeds) {
  AttemptEnded ended;
  ended.speeds = std::move(speeds);
  ended.status = status ? *status : exit_code(status.error().code);
  ended.cause = status ? "" : status.error().to_string();
  // A run has tried again by itself before it fails; what fails while it measures has been tried
  // once.
  const bool tried_once = !launched && !status && status.error().code == ErrorCode::kRunFailed;
  ended.hopeless = !status && !tried_once && is_hopeless(status.error().code);
  return ended;
}

}  // namespace

Result<int> perform_attempt(const std::string& directory) {
  hold_back_stops();
  const AttemptFiles files(directory);
  MOTLEY_TRY(const AttemptOrder order, files.order());
  const auto process = identity_of(::getpid());
  if (!process) return fail(ErrorCode::kIo, "cannot read our own entry of /proc");
  const AttemptBegun begun{*process, saved_step_of(order.job), first_epoch(order.job)};
  MOTLEY_TRY(const bool ours, files.claim(begun));
  if (!ours) return 0;
  std::map<std::string, double> speeds;
  const Result<int> status = without_exceptions([&] { return perform(order, directory, &speeds); });
  const bool launched = first_epoch(order.job) > begun.first_epoch;
  AttemptEnded ended = end_of(status, launched, std::move(speeds));
  ended.blameless = !status && is_disk_full(status.error());
  ended.elsewhere = !status && !order.measure && needs_others(status.error().code, launched);
  ended.saved_step = saved_step_of(order.job);
  const bool done = ended.status == 0 && !order.measure;
  ended.progressed = done || ended.saved_step > begun.saved_step;
  MOTLEY_TRY_VOID(files.write_end(ended));
  return status;
}

}  // namespace motley
