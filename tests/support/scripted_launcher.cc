#include "tests/support/scripted_launcher.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <set>
#include <utility>

#include "scheduler/launch/child_process.h"
#include "scheduler/launch/environment.h"
#include "scheduler/launch/log_file.h"
#include "scheduler/launch/mpirun_account.h"
#include "scheduler/launch/process_tree.h"

namespace motley::testing {
namespace {

class ScriptedLaunched final : public Launched {
 public:
  ScriptedLaunched(ChildProcess supervisor, std::set<pid_t> others, std::string log)
      : supervisor_(std::move(supervisor)), others_(std::move(others)), log_(std::move(log)) {}
  ~ScriptedLaunched() override { kill_all(); }

  int exit_fd() const override { return supervisor_.exit_fd(); }
  std::optional<LaunchEnd> end() override {
    ExitStatus status;
    if (!supervisor_.ended(&status)) return std::nullopt;
    LaunchEnd end;
    if (status.ok()) return end;
    end.crashed = status.signal != 0;
    end.error =
        Error{error_code_of_exit(status.status), "ranks ended with " + status.to_string(), {}};
    end.first = first_failure_in(tail_of(log_));
    return end;
  }
  void kill_all() override {
    ExitStatus status;
    supervisor_.send(SIGKILL);
    supervisor_.wait(nanos_of_seconds(10), &status);
    kill_descendants(others_, nanos_of_seconds(10));
  }
  std::vector<pid_t> processes() const override {
    std::vector<pid_t> ours = descendants_of(::getpid());
    std::erase_if(ours, [&](pid_t pid) { return others_.count(pid) != 0; });
    return ours;
  }

 private:
  ChildProcess supervisor_;
  std::set<pid_t> others_;
  std::string log_;
};

[[noreturn]] void act(const ScriptedExit& script) {
  ::usleep(static_cast<useconds_t>(script.after.value() / 1000));
  if (script.signal != 0) {
    ::signal(script.signal, SIG_DFL);
    ::raise(script.signal);
  }
  ::_exit(script.status);
}

[[noreturn]] void run_rank(const LaunchRequest& request, int rank) {
  const std::string log = rank_log_path(request.log_directory, rank);
  const int output = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  Environment environment = Environment::inherited();
  for (const std::string& entry : request.environment) {
    const size_t equals = entry.find('=');
    environment.set(entry.substr(0, equals), entry.substr(equals + 1));
  }
  environment.set("OMPI_COMM_WORLD_RANK", std::to_string(rank));
  environment.set("OMPI_COMM_WORLD_SIZE", std::to_string(request.ranks.size()));
  std::vector<char*> arguments, variables;
  for (const std::string& word : request.command)
    arguments.push_back(const_cast<char*>(word.c_str()));
  for (const std::string& entry : environment.entries())
    variables.push_back(const_cast<char*>(entry.c_str()));
  arguments.push_back(nullptr);
  variables.push_back(nullptr);
  ::setpgid(0, 0);  // as under mpirun: each rank its own group
  ::execve(find_program(request.command.front()).c_str(), arguments.data(), variables.data());
  ::_exit(127);
}

/// In mpirun's words.
void give_account(const std::string& log, int rank, int status) {
  std::ofstream out(log, std::ios::app);
  if (WIFSIGNALED(status))
    out << "supervisor noticed that process rank " << rank
        << " with PID 0 on node here exited on signal " << WTERMSIG(status) << ".\n";
  else
    out << "  Process name: [[1,1]," << rank << "]\n  Exit code:    " << WEXITSTATUS(status)
        << "\n";
}

/// Waits for all ranks; ends the rest when one fails.
[[noreturn]] void supervise(const std::vector<pid_t>& ranks, const std::string& log) {
  for (size_t left = ranks.size(); left > 0; --left) {
    int status = 0;
    const pid_t ended = ::wait(&status);
    if (ended < 0) break;
    if (status == 0) continue;
    const auto rank = std::find(ranks.begin(), ranks.end(), ended);
    give_account(log, static_cast<int>(rank - ranks.begin()), status);
    for (const pid_t pid : ranks) ::kill(pid, SIGKILL);
    ::_exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
  }
  ::_exit(0);
}

class ScriptedLauncher final : public Launcher {
 public:
  explicit ScriptedLauncher(std::vector<ScriptedExit> exits) : exits_(std::move(exits)) {}

  Result<std::unique_ptr<Launched>> launch(const LaunchRequest& request) override {
    if (find_program(request.command.front()).empty())
      return fail(ErrorCode::kBrokenInstall, "no program " + request.command.front());
    become_subreaper();
    const std::vector<pid_t> before = descendants_of(::getpid());
    const pid_t pid = ::fork();
    if (pid < 0) return fail(ErrorCode::kIo, "cannot fork");
    if (pid == 0) start_ranks(request);
    MOTLEY_TRY(ChildProcess child, ChildProcess::watch(pid));
    return std::make_unique<ScriptedLaunched>(std::move(child),
                                              std::set<pid_t>(before.begin(), before.end()),
                                              launch_log_path(request.log_directory));
  }

 private:
  [[noreturn]] void start_ranks(const LaunchRequest& request) const {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < static_cast<int>(request.ranks.size()); ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        for (const ScriptedExit& script : exits_)
          if (script.rank == rank) act(script);
        run_rank(request, rank);
      }
      ranks.push_back(pid);
    }
    supervise(ranks, launch_log_path(request.log_directory));
  }

  std::vector<ScriptedExit> exits_;
};

}  // namespace

std::unique_ptr<Launcher> scripted_launcher(std::vector<ScriptedExit> exits) {
  return std::make_unique<ScriptedLauncher>(std::move(exits));
}

}  // namespace motley::testing
