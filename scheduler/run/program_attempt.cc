#include "scheduler/run/program_attempt.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "scheduler/launch/environment.h"
#include "scheduler/launch/this_host.h"
#include "scheduler/launch/worker_program.h"

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

}  // namespace

Result<ProgramAssignment> ProgramAttempts::assignment(const RunDirectory& run,
                                                      const FleetSpec& fleet,
                                                      const std::string& directory) const {
  ProgramAssignment assignment;
  assignment.epoch = Epoch(1);
  assignment.run = run.title();
  assignment.directory = directory;
  assignment.master_address = master_address(fleet);
  MOTLEY_TRY(assignment.master_port, free_port());
  search_as_here(&assignment);
  assignment.job = options_.job;
  assignment.fleet = fleet;
  assignment.log_limit = options_.log_limit;
  return assignment;
}

Result<Followed> ProgramAttempts::launch(const RunDirectory& run,
                                         const ProgramAssignment& assignment, const Plan& plan,
                                         const std::function<void()>& begun,
                                         const std::function<void(const RunnerLine&)>& on_line) {
  RunnerClientOptions client;
  client.program = own_program();
  client.kind = AssignmentKind::kProgram;
  client.document = assignment.directory + "/program.json";
  client.lock_fd = run.lock_fd();
  client.rsh_agent = options_.rsh_agent;
  MOTLEY_TRY_VOID(real_file_system().make_directories(assignment.directory));
  MOTLEY_TRY_VOID(real_file_system().make_directories(assignment.checkpoints));
  MOTLEY_TRY_VOID(write_program(assignment, client.document));
  if (plan.global_batch > 0)
    MOTLEY_TRY_VOID(write_text_durably(real_file_system(), plan_path(assignment.directory),
                                       to_json(plan).dump(1) + "\n"));
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

/// What the job wants done before.
Result<Unit> ProgramAttempts::set_up(const std::string& document) {
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
  // Whatever the command itself ends with is 1: it is ours that has not found it.
  const bool missing = status.status == exit_code(ErrorCode::kNotFound);
  return fail(missing ? ErrorCode::kNotFound : ErrorCode::kRunFailed,
              "setup failed (" + status.to_string() + ")");
}

}  // namespace motley
