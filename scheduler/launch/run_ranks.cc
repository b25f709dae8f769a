#include "scheduler/launch/run_ranks.h"

#include <poll.h>

#include <fstream>
#include <sstream>

#include "scheduler/launch/environment.h"
#include "scheduler/launch/launcher.h"
#include "scheduler/launch/remote_hosts.h"
#include "scheduler/launch/scratch.h"
#include "scheduler/launch/worker_program.h"

namespace motley {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Result<Unit> wait_for(Launched& launched, Nanos limit) {
  pollfd ended{.fd = launched.exit_fd(), .events = POLLIN, .revents = 0};
  if (::poll(&ended, 1, static_cast<int>(limit.value() / 1'000'000)) <= 0) {
    launched.kill_all();
    return fail(ErrorCode::kNoDevice, "the ranks take too long; see motley doctor");
  }
  const auto end = launched.end();
  if (end && end->error) return fail(*end->error);
  return Unit{};
}

}  // namespace

Result<std::string> run_ranks(const std::vector<RankPlacement>& ranks,
                              const std::vector<std::string>& arguments,
                              const std::string& rsh_agent, Nanos limit) {
  MOTLEY_TRY(const std::string worker, worker_program());
  MOTLEY_TRY(const Scratch scratch, Scratch::create());
  const std::vector<std::string> hosts = remote_hosts(ranks);
  const std::vector<std::string> directories = {scratch.path(), scratch.shared_memory()};
  const auto staged = stage_on(
      hosts, {.directories = directories, .files = {}, .worker = worker, .rsh_agent = rsh_agent});
  if (!staged) return fail(staged.error().error);
  LaunchRequest request{.ranks = ranks,
                        .command = {worker},
                        .environment = environment_for_ranks(Environment::inherited()),
                        .log_directory = scratch.path(),
                        .scratch_directory = scratch.path(),
                        .shared_memory_directory = scratch.shared_memory(),
                        .rsh_agent = rsh_agent};
  request.command.insert(request.command.end(), arguments.begin(), arguments.end());
  const auto launcher = mpirun_launcher();
  MOTLEY_TRY(const auto launched, launcher->launch(request));
  const auto done = wait_for(*launched, limit);
  const std::string said = text_of(scratch.path() + "/rank-0000.log");
  remove_on(hosts, directories, rsh_agent);
  if (done) return said;
  const std::string words = last_words_of_worker(said);
  return fail(done.error().code, words.empty() ? done.error().message : words);
}

}  // namespace motley
