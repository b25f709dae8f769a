#include "scheduler/run/run_program.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "core/clock.h"
#include "core/file_system.h"
#include "core/spec/json.h"
#include "core/units.h"
#include "scheduler/launch/environment.h"
#include "scheduler/launch/this_host.h"
#include "scheduler/launch/worker_program.h"
#include "scheduler/run/follow.h"
#include "scheduler/run/measure.h"
#include "scheduler/run/program_profile.h"
#include "scheduler/run/progress_file.h"
#include "scheduler/run/progress_line.h"
#include "scheduler/run/retry_policy.h"
#include "scheduler/runner/program_assignment.h"

namespace motley {
namespace {

/// One that nobody listens on just now.
Result<int> free_port() {
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!fd.valid() || ::bind(fd.get(), generic, size) != 0 ||
      ::getsockname(fd.get(), generic, &size) != 0)
    return fail(ErrorCode::kIo, "no port is free for the ranks to meet at");
  return int{ntohs(address.sin_port)};
}

/// Of rank 0's host: as others know it, where there are others.
std::string master_address(const FleetSpec& fleet) {
  const std::vector<std::string> hosts = fleet.hosts();
  if (hosts.size() == 1) return "127.0.0.1";
  return is_this_host(hosts.front()) ? own_address_towards(hosts[1]) : hosts.front();
}

class ProgramRun {
 public:
  explicit ProgramRun(RunOptions options)
      : options_(std::move(options)), line_(steady_clock()), policy_(options_.job.retry, 0) {}

  Result<int> run() {
    if (options_.plan) return fail(ErrorCode::kUsage, "--plan is for a model, not for a program");
    MOTLEY_TRY_VOID(choose_devices());
    MOTLEY_TRY_VOID(open());
    if (run_->read("done").has_value()) return finished();
    line_.note("run " + run_->title() + " in " + run_->path());
    if (!deal()) {
      say_json("stopped");
      return 128 + signals_.last();
    }
    while (true) {
      const int64_t before = saved_step(*run_, options_.job);
      MOTLEY_TRY(const Followed followed, attempt());
      if (followed.end.outcome == Outcome::kFinished) return finished();
      if (followed.signal != 0 || followed.end.outcome == Outcome::kStopped)
        return stopped(followed);
      if (saved_step(*run_, options_.job) != before) ++progress_;
      const RetryDecision next = policy_.after({.error = followed.end.error,
                                                .device = "",
                                                .step_reached = progress_,
                                                .all_steps_done = false,
                                                .older_checkpoint = false});
      if (!next.again) return fail(followed.end.error);
      line_.note("attempt failed: " + followed.end.error.to_string());
      if (next.wait > Nanos(0))
        line_.note("trying again in " + format_seconds(seconds_of(next.wait)));
      if (!wait(next.wait)) return 128 + signals_.last();
    }
  }

 private:
  /// A rank each: as many as the job asks for at most, the first ones.
  Result<Unit> choose_devices() {
    MOTLEY_TRY(fleet_, admitted(options_.fleet, options_.job));
    MOTLEY_TRY_VOID(check_told_apart(fleet_));
    const auto& count = options_.job.devices.count;
    if (count && fleet_.devices.size() > static_cast<size_t>(count->high))
      fleet_.devices.resize(static_cast<size_t>(count->high));
    return Unit{};
  }

  Result<Unit> open() {
    run_ = std::move(options_.run);
    if (!run_ && !options_.fresh) {
      MOTLEY_TRY(run_, RunDirectory::newest(options_.job));
    }
    if (!run_) {
      MOTLEY_TRY(RunDirectory created, RunDirectory::create(options_.job));
      run_ = std::move(created);
    }
    MOTLEY_TRY_VOID(run_->lock());
    MOTLEY_TRY_VOID(run_->write("job.json", to_json(options_.job).dump(1) + "\n"));
    return run_->write("fleet.json", to_json(options_.fleet).dump(1) + "\n");
  }

  /// Who gets how much of a step; devices that would slow it down are left out. False: a signal
  /// came while they were measured.
  bool deal() {
    const size_t ranks = fleet_.devices.size();
    const TrainSpec& train = options_.job.train;
    if (train.global_batch > 0) shares_ = equal_shares(train, static_cast<int>(ranks));
    const std::string equal =
        std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks with equal shares") + ": ";
    if (!can_be_measured(options_.job)) {
      line_.note(equal + "nobody has measured the program");
      return true;
    }
    const auto profiles = measured();
    if (signals_.last() != 0) return false;
    const auto& count = options_.job.devices.count;
    const auto dealt =
        profiles ? deal_program(train, *profiles, count ? count->low : 1) : fail(profiles.error());
    if (!dealt) {
      line_.note(equal + dealt.error().message);
      return true;
    }
    use(*dealt, *profiles);
    return true;
  }

  void use(const ProgramDeal& dealt, const std::vector<DeviceProfile>& profiles) {
    FleetSpec used = fleet_;
    used.devices.clear();
    shares_.clear();
    std::string text, left_out;
    for (size_t i = 0; i < dealt.shares.size(); ++i) {
      const std::string& id = fleet_.devices[i].id;
      const int samples = dealt.shares[i].samples;
      if (samples == 0) {
        left_out += (left_out.empty() ? "; not used: " : ", ") + id +
                    (profiles[i].curves.empty() ? " (not measured)" : " (would slow it down)");
        continue;
      }
      text += (text.empty() ? "" : ", ") + id + " " + std::to_string(samples);
      used.devices.push_back(fleet_.devices[i]);
      shares_.push_back(dealt.shares[i]);
    }
    fleet_ = std::move(used);
    line_.note("samples of a step: " + text + left_out + " (" + format_seconds(dealt.step_seconds) +
               " to compute)");
  }

  /// By device; one of each kind is measured. Without curves: the program does not run there.
  Result<std::vector<DeviceProfile>> measured() {
    const ProgramProfiles profiles(options_.job, fleet_);
    std::vector<DeviceProfile> found;
    std::set<std::string> silent;  // kinds
    for (const DeviceSpec& device : fleet_.devices) {
      const std::string kind = device.type + profiles.identity(device);
      auto profile = profiles.find(device);
      if (!profile && silent.count(kind) == 0) {
        line_.note("measuring the program on " + device.id + " (" + device.type + ")");
        const auto told = measure(device);
        if (!told && told.error().code != ErrorCode::kRunFailed) return fail(told.error());
        if (told) MOTLEY_TRY_VOID(profiles.keep(device, *told));
        if (!told) line_.note(told.error().message);
        profile = profiles.find(device);
      }
      if (!profile) silent.insert(kind);
      found.push_back(profile ? std::move(*profile) : DeviceProfile{});
    }
    return found;
  }

  /// What the program tells of itself, alone on one device. It may fail in the end, at a
  /// micro-batch that is too large.
  Result<std::string> measure(const DeviceSpec& device) {
    FleetSpec alone = fleet_;
    alone.devices = {device};
    MOTLEY_TRY(ProgramAssignment assignment, assignment_on(alone, run_->file("measure")));
    assignment.measure = true;
    assignment.checkpoints = assignment.directory + "/checkpoints";
    assignment.shares = equal_shares(options_.job.train, 1);
    MOTLEY_TRY_VOID(real_file_system().remove_all(assignment.directory));
    MOTLEY_TRY(const Followed followed, launch(
                                            assignment, [] {}, [](const RunnerLine&) {}));
    if (followed.signal != 0) return fail(ErrorCode::kStopped, "stopped while measuring");
    const auto end = read_program_end(assignment.directory, 0);
    if (end && !end->measured.empty()) return end->measured;
    return fail(ErrorCode::kRunFailed, "it told nothing of its times on " + device.id +
                                           (followed.end.outcome == Outcome::kFinished
                                                ? ""
                                                : " (" + followed.end.error.message + ")"));
  }

  Result<ProgramAssignment> assignment_on(const FleetSpec& fleet, const std::string& directory) {
    ProgramAssignment assignment;
    assignment.epoch = Epoch(1);
    assignment.run = run_->title();
    assignment.directory = directory;
    assignment.master_address = master_address(fleet);
    MOTLEY_TRY(assignment.master_port, free_port());
    assignment.job = options_.job;
    assignment.fleet = fleet;
    return assignment;
  }

  /// One attempt. `begun` is called once what the job wants done before is done.
  Result<Followed> launch(const ProgramAssignment& assignment, const std::function<void()>& begun,
                          const std::function<void(const RunnerLine&)>& on_line) {
    RunnerClientOptions client;
    client.program = own_program();
    client.kind = AssignmentKind::kProgram;
    client.document = assignment.directory + "/program.json";
    client.lock_fd = run_->lock_fd();
    client.rsh_agent = options_.rsh_agent;
    MOTLEY_TRY_VOID(real_file_system().make_directories(assignment.directory));
    MOTLEY_TRY_VOID(real_file_system().make_directories(assignment.checkpoints));
    MOTLEY_TRY_VOID(write_program(assignment, client.document));
    if (const auto ready = set_up(client.document); !ready) {
      Followed ended;
      ended.signal = signals_.last();
      ended.end.error = ready.error();
      return ended;
    }
    MOTLEY_TRY(const auto runner, RunnerClient::start(client));
    begun();
    return follow(*runner, signals_, OnSignal::kStopThenKill, on_line, [&](int) {
      line_.note("stopping: the program is asked to save (Ctrl-C: end now)");
    });
  }

  Result<Followed> attempt() {
    MOTLEY_TRY(const Epoch epoch, run_->next_epoch(options_.job));
    MOTLEY_TRY(ProgramAssignment assignment, assignment_on(fleet_, run_->attempt_directory(epoch)));
    assignment.epoch = epoch;
    assignment.checkpoints = run_->checkpoints(options_.job);
    assignment.shares = shares_;
    ProgressFile file(real_file_system(), steady_clock(), run_->file("progress.json"));
    RunProgress progress{.epoch = epoch, .phase = "setup", .begun = unix_seconds()};
    file.write(progress);
    const auto begun = [&] {
      progress.phase = "running";
      file.write(progress);
    };
    return launch(assignment, begun, [&](const RunnerLine& line) { on_line(line); });
  }

  /// What the job wants done before.
  Result<Unit> set_up(const std::string& document) {
    if (options_.job.program.setup.empty()) return Unit{};
    SpawnRequest request;
    request.command = {own_program(), "rank", document, "--setup"};
    request.environment = Environment::inherited().entries();
    request.die_with_parent = true;
    if (options_.json) request.stdout_fd = STDERR_FILENO;
    MOTLEY_TRY(ChildProcess child, ChildProcess::spawn(request));
    ExitStatus status;
    while (!child.ended(&status)) {
      if (signals_.next()) child.send(SIGTERM);
      pollfd watched[2] = {{child.exit_fd(), POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
      ::poll(watched, 2, -1);
    }
    if (status.ok()) return Unit{};
    return fail(ErrorCode::kRunFailed, "setup failed (" + status.to_string() + ")");
  }

  void on_line(const RunnerLine& line) const {
    const auto data = nlohmann::json::parse(line.data, nullptr, false);
    if (line.event != "output" || !data.is_object()) return;
    std::FILE* out = options_.json ? stderr : stdout;
    std::fputs(data.value("text", "").c_str(), out);
    std::fflush(out);
  }

  Result<int> finished() {
    MOTLEY_TRY_VOID(run_->write("done", ""));
    line_.note("run " + run_->title() + " is finished; --fresh starts another one");
    say_json("finished");
    return 0;
  }

  Result<int> stopped(const Followed& followed) {
    say_json("stopped");
    if (followed.end.outcome != Outcome::kStopped) {
      line_.note("ended by a signal: " + followed.end.error.message);
      return 128 + followed.signal;
    }
    line_.note("stopped; to continue: " + options_.again);
    return exit_code(ErrorCode::kStopped);
  }

  void say_json(const char* outcome) const {
    if (options_.json)
      std::printf("%s\n", nlohmann::json{{"run", run_->title()},
                                         {"outcome", outcome},
                                         {"attempt", run_->last_epoch()},
                                         {"restarts", policy_.restarts()}}
                              .dump()
                              .c_str());
  }

  /// False: a signal came first.
  bool wait(Nanos time) {
    const Nanos until = steady_clock().now() + time;
    while (steady_clock().now() < until) {
      pollfd watched{signals_.fd(), POLLIN, 0};
      ::poll(&watched, 1, poll_milliseconds(until));
      if (signals_.next()) return false;
    }
    return true;
  }

  RunOptions options_;
  SignalInbox signals_;
  ProgressLine line_;
  RetryPolicy policy_;
  FleetSpec fleet_;
  std::vector<RankShare> shares_;
  std::optional<RunDirectory> run_;
  int64_t progress_ = 0;
};

}  // namespace

Result<int> run_program(RunOptions options) { return ProgramRun(std::move(options)).run(); }

int64_t saved_step(const RunDirectory& run, const JobSpec& job) {
  if (!job.is_program()) {
    const auto committed = run.committed(job);
    return committed.empty() ? 0 : committed.front().step;
  }
  int64_t newest = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(run.checkpoints(job), error)) {
    if (entry.path().filename().string().starts_with(".")) continue;  // not done yet, or going
    struct stat status {};
    if (::stat(entry.path().c_str(), &status) == 0)
      newest =
          std::max<int64_t>(newest, status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec);
  }
  return newest;
}

}  // namespace motley
