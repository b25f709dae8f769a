#include "scheduler/run/measure.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/attempt.h"
#include "core/debug_env.h"
#include "core/file_system.h"
#include "core/json_fields.h"
#include "core/json_file.h"
#include "core/log.h"
#include "core/reports.h"
#include "core/spec/json.h"
#include "core/spec/pin_fault.h"
#include "core/spec/precisions.h"
#include "core/spec/reader.h"
#include "core/user_directories.h"
#include "scheduler/launch/command.h"
#include "scheduler/launch/remote_hosts.h"
#include "scheduler/launch/worker_program.h"
#include "scheduler/run/follow.h"
#include "scheduler/run/profile_cache.h"
#include "scheduler/run/profile_text.h"

namespace motley {
namespace {

constexpr int kLookAgainMilliseconds = 50;

int64_t seconds_since_1970() {
  using namespace std::chrono;
  return duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
}

/// Listens to a profiling attempt.
class ProfileListener {
 public:
  ProfileListener(size_t devices, ProgressLine& line)
      : line_(line), title_(measuring_text(devices)) {
    line_.show(title_, true);
  }

  void on_line(const RunnerLine& line) {
    if (line.event == "phase") {
      const auto phase = phase_report_from_text(line.data);
      if (phase && !phase->detail.empty()) line_.show(title_ + ": " + phase->detail);
    } else if (line.event == "profile") {
      text_ = line.data;
    }
  }

  Result<Profile> result() const {
    if (text_.empty())
      return fail(ErrorCode::kInternal, "the worker ended without giving a profile");
    MOTLEY_TRY(const auto document, parse_json(text_));
    auto profile = profile_from_json(document);
    if (!profile)
      return fail(ErrorCode::kRunFailed, "what was measured is of no use (" +
                                             profile.error().message +
                                             "); end what else uses these devices, then run again");
    return profile;
  }

 private:
  ProgressLine& line_;
  std::string title_;
  std::string text_;
};

std::string turn_file(const std::string& directory, const std::string& name) {
  return directory + "/profiling/." + name;
}

/// The lock of all that measures jobs of a name: their files are in the same place, and each would
/// disturb what the other measures. Kept by the runner too, as its ranks may outlive us.
Result<Fd> take_turn(const std::string& name, SignalInbox& signals, ProgressLine& line) {
  MOTLEY_TRY_VOID(make_state_directory(real_file_system(), state_directory()));
  MOTLEY_TRY_VOID(make_state_directory(real_file_system(), state_directory() + "/profiling"));
  const std::string path = turn_file(state_directory(), name);
  Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock.valid())
    return fail(ErrorCode::kIo, "cannot open " + path + ": " + std::strerror(errno));
  for (bool told = false; ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0; told = true) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return fail(ErrorCode::kIo, "cannot lock " + path + ": " + std::strerror(errno));
    if (!told) line.note("waiting for another motley that measures a job named " + name);
    pollfd watched{signals.fd(), POLLIN, 0};
    ::poll(&watched, 1, kLookAgainMilliseconds);
    if (signals.next()) return fail(ErrorCode::kStopped, "interrupted before measuring");
  }
  return lock;
}

/// In its turn.
Result<Profile> measure(const JobSpec& job, const FleetSpec& fleet, const MeasureOptions& options,
                        const Fd& turn, SignalInbox& signals, ProgressLine& line) {
  // Left there when it fails, for its logs; replaced by the next.
  const std::string directory = state_directory() + "/profiling/" + job.name;
  MOTLEY_TRY_VOID(real_file_system().remove_all(directory));
  MOTLEY_TRY_VOID(make_state_directory(real_file_system(), directory));
  const std::vector<RankPlacement> ranks = rank_for_each_device(fleet);
  ProfileRequest request;
  request.epoch = Epoch(1);
  request.job = job;
  request.fleet = fleet;
  RunnerClientOptions client;
  client.program = own_program();
  client.kind = AssignmentKind::kProfile;
  client.document = directory + "/request.json";
  client.rsh_agent = options.rsh_agent;
  client.lock_fd = turn.get();
  MOTLEY_TRY_VOID(
      write_text_durably(real_file_system(), client.document, to_json(request).dump() + "\n"));
  MOTLEY_TRY(const auto runner, RunnerClient::start(client));
  ProfileListener listener(fleet.devices.size(), line);
  const Followed followed = follow(
      *runner, signals, OnSignal::kKill, [&](const RunnerLine& event) { listener.on_line(event); },
      [](int) {});
  line.finish();
  if (followed.signal != 0) return fail(ErrorCode::kStopped, "interrupted while measuring");
  if (followed.end.outcome != Outcome::kFinished) return fail(followed.end.error);
  MOTLEY_TRY(Profile profile, listener.result());
  MOTLEY_TRY_VOID(real_file_system().remove_all(directory));
  remove_on(remote_hosts(ranks), {directory}, options.rsh_agent);
  return profile;
}

}  // namespace

Result<Profile> obtain_profile(const JobSpec& job, const FleetSpec& admitted,
                               const MeasureOptions& options, SignalInbox& signals,
                               ProgressLine& line) {
  MOTLEY_TRY_VOID(check_precisions(admitted, job));
  MOTLEY_TRY(const std::string worker, worker_program());
  MOTLEY_TRY(const ProfileCache cache, user_profile_cache(worker));
  if (!admitted.links.empty()) line.note(unused_links(admitted));
  const auto known = [&]() -> std::optional<Profile> {
    auto found = options.refresh ? std::nullopt : cache.find(job, admitted);
    if (!found) return std::nullopt;
    line.note(from_the_cache(*found, seconds_since_1970()));
    return std::move(found->profile);
  };
  if (auto profile = known()) return std::move(*profile);
  MOTLEY_TRY(const Fd turn, take_turn(job.name, signals, line));
  if (auto profile = known()) return std::move(*profile);  // measured by the one we waited for
  MOTLEY_TRY(Profile profile, measure(job, admitted, options, turn, signals, line));
  for (const std::string& doubt : doubts(profile)) line.note(doubt);
  if (options.refresh) MOTLEY_TRY_VOID(cache.forget(job, admitted));
  MOTLEY_TRY_VOID(cache.store(job, profile, seconds_since_1970()));
  return profile;
}

bool being_measured(const std::string& state_home, const std::string& name) {
  const Fd lock(::open(turn_file(state_home + "/motley", name).c_str(), O_RDWR | O_CLOEXEC));
  return lock.valid() && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0;
}

Result<FleetSpec> local_fleet() {
  MOTLEY_TRY(const std::string worker, worker_program());
  MOTLEY_TRY(const CommandOutput output,
             run_command({{worker, "devices", "--json"}, ""}, nanos_of_seconds(60)));
  if (!output.status.ok())
    return fail(error_code_of_exit(output.status.status),
                "cannot list this machine's devices: " + last_words_of_worker(output.err));
  MOTLEY_TRY(const auto document,
             parse_json_file(output.out, worker + " devices", ErrorCode::kBrokenInstall));
  MOTLEY_TRY(FleetSpec fleet, fleet_from_json(document.value("fleet", nlohmann::json())));
  fleet.source = "this machine";
  return fleet;
}

namespace {

Result<FleetSpec> named_fleet(const std::string& fleet_option, const JobSpec& job) {
  if (!fleet_option.empty()) return read_fleet(fleet_option);
  if (job.fleet_path.empty()) return local_fleet();
  auto fleet = read_fleet(job.fleet_path);
  if (!fleet && fleet.error().code == ErrorCode::kNotFound)
    return fail(ErrorCode::kNotFound, "'fleet': " + fleet.error().to_string(),
                place_of(job, "fleet"));
  return fleet;
}

}  // namespace

Result<FleetSpec> resolve_fleet(const std::string& fleet_option, JobSpec& job) {
  MOTLEY_TRY(FleetSpec fleet, named_fleet(fleet_option, job));
  MOTLEY_TRY_VOID(choose_alternative(fleet, job));
  MOTLEY_TRY_VOID(check_pinned_devices(job, fleet));
  for (const std::string& doubt : misspelt_types(fleet, job)) log_warning(doubt);
  return fleet;
}

}  // namespace motley
