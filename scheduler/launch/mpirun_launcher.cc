// Ranks under Open MPI's mpirun (4.1).

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <set>
#include <utility>

#include "scheduler/launch/child_process.h"
#include "scheduler/launch/environment.h"
#include "scheduler/launch/launcher.h"
#include "scheduler/launch/log_file.h"
#include "scheduler/launch/mpirun_account.h"
#include "scheduler/launch/mpirun_command.h"
#include "scheduler/launch/process_tree.h"

namespace motley {
namespace {

class MpirunLaunched final : public Launched {
 public:
  MpirunLaunched(ChildProcess child, std::set<pid_t> others, std::string log, int64_t log_begin)
      : child_(std::move(child)),
        others_(std::move(others)),
        log_(std::move(log)),
        log_begin_(log_begin) {}
  ~MpirunLaunched() override { kill_all(); }

  int exit_fd() const override { return child_.exit_fd(); }

  std::optional<LaunchEnd> end() override {
    ExitStatus status;
    if (!child_.ended(&status)) return std::nullopt;
    LaunchEnd end;
    if (status.ok()) return end;
    end.crashed = status.signal != 0;
    end.error = Error{end.crashed ? ErrorCode::kRunFailed : error_code_of_exit(status.status),
                      "mpirun ended with " + status.to_string(),
                      {}};
    end.first = first_failure_in(tail_of(log_, log_begin_));
    return end;
  }

  void kill_all() override {
    ExitStatus status;
    child_.send(SIGKILL);
    child_.wait(nanos_of_seconds(10), &status);
    kill_descendants(others_, nanos_of_seconds(10));
  }

  std::vector<pid_t> processes() const override {
    std::vector<pid_t> ours = descendants_of(::getpid());
    std::erase_if(ours, [&](pid_t pid) { return others_.count(pid) != 0; });
    return ours;
  }

 private:
  ChildProcess child_;
  std::set<pid_t> others_;  ///< our descendants before the launch
  std::string log_;         ///< of mpirun
  int64_t log_begin_;       ///< what lies before is of another launch
};

class MpirunLauncher final : public Launcher {
 public:
  Result<std::unique_ptr<Launched>> launch(const LaunchRequest& request) override {
    std::string mpirun = find_program("mpirun.openmpi");
    if (mpirun.empty()) mpirun = find_program("mpirun");
    if (mpirun.empty())
      return fail(ErrorCode::kBrokenInstall,
                  "mpirun is not installed (apt-get install openmpi-bin)");
    if (find_program(request.command.front()).empty())
      return fail(ErrorCode::kBrokenInstall, "no program " + request.command.front());
    become_subreaper();
    const std::vector<pid_t> before = descendants_of(::getpid());

    Environment environment = Environment::inherited();
    if (::geteuid() == 0) {
      environment.set_default("OMPI_ALLOW_RUN_AS_ROOT", "1");
      environment.set_default("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }
    const std::string log = launch_log_path(request.log_directory);
    const Fd output(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!output.valid())
      return fail(ErrorCode::kIo, "cannot write " + log + ": " + std::strerror(errno));
    SpawnRequest spawn;
    MOTLEY_TRY(spawn.command, mpirun_command(mpirun, environment, request));
    spawn.environment = environment.entries();
    spawn.stdout_fd = output.get();
    spawn.stderr_fd = output.get();
    spawn.new_session = true;
    spawn.die_with_parent = true;
    MOTLEY_TRY(ChildProcess child, ChildProcess::spawn(spawn));
    return std::make_unique<MpirunLaunched>(std::move(child),
                                            std::set<pid_t>(before.begin(), before.end()), log,
                                            ::lseek(output.get(), 0, SEEK_END));
  }
};

}  // namespace

std::unique_ptr<Launcher> mpirun_launcher() { return std::make_unique<MpirunLauncher>(); }

}  // namespace motley
