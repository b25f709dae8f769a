#include "scheduler/launch/remote_hosts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "core/json_fields.h"
#include "scheduler/launch/command.h"
#include "scheduler/launch/this_host.h"
#include "scheduler/launch/worker_program.h"

namespace motley {
namespace {

constexpr double kAnswerSeconds = 20;
constexpr double kRemoveSeconds = 3;
constexpr int kShellNotFound = 127;

std::string staging_script(const Staging& staging) {
  std::string script = "umask 077\nset -e\n";
  for (const std::string& directory : staging.directories)
    script += "mkdir -p " + shell_quoted(directory) + "\n";
  for (const std::string& file : staging.stale) script += "rm -f " + shell_quoted(file) + "\n";
  // Hosts may share a file system: each writes a file of its own, then puts it in place.
  script += "mine=.new.$(hostname).$$\n";
  for (const StagedFile& file : staging.files) {
    const std::string path = shell_quoted(file.path);
    script += "printf %s " + shell_quoted(file.text) + " >" + path + "$mine\n" + "mv -f " + path +
              "$mine " + path + "\n";
  }
  return script + shell_quoted(staging.worker) + " version --json\n";
}

/// What must be equal everywhere, from `motley-worker version --json`.
std::string version_of(const std::string& text, const char* field) {
  const auto document = parse_json(text);
  if (!document || !document->is_object()) return "";
  const auto found = document->find(field);
  return found != document->end() && found->is_string() ? found->get<std::string>() : "";
}

Result<Unit> compare_versions(const std::string& host, const std::string& own,
                              const std::string& theirs) {
  for (const char* field : {"version", "git", "mpi"}) {
    const std::string here = version_of(own, field);
    const std::string there = version_of(theirs, field);
    if (here != there)
      return fail(ErrorCode::kBrokenInstall, "host " + host + " has motley-worker with " + field +
                                                 " '" + there + "', this one '" + here +
                                                 "'; install the same build on both");
  }
  return Unit{};
}

Result<Unit> check_answer(const std::string& host, const Staging& staging, const std::string& own,
                          const Result<CommandOutput>& answer) {
  if (!answer) return fail(ErrorCode::kBrokenInstall, answer.error().message);
  const std::string said = last_words_of_worker(answer->err);
  if (answer->timed_out)
    return fail(ErrorCode::kNoDevice, "host " + host + " does not answer within " +
                                          std::to_string(static_cast<int>(kAnswerSeconds)) + " s");
  if (answer->status.status == kShellNotFound)
    return fail(ErrorCode::kBrokenInstall,
                "host " + host + " has no " + staging.worker + " (" + said + ")");
  if (!answer->status.ok())
    return fail(
        ErrorCode::kNoDevice,
        "host " + host + " cannot be used: " +
            (said.empty() ? "the remote shell ended with " + answer->status.to_string() : said));
  return compare_versions(host, own, last_line(answer->out));
}

}  // namespace

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string shell_command(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
  std::string command;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && word.find_first_not_of(kPlain) == std::string::npos;
    command += (command.empty() ? "" : " ") + (plain ? word : shell_quoted(word));
  }
  return command;
}

std::vector<std::string> remote_hosts(const std::vector<RankPlacement>& ranks) {
  std::vector<std::string> hosts;
  for (const RankPlacement& rank : ranks)
    if (!is_this_host(rank.host) && std::find(hosts.begin(), hosts.end(), rank.host) == hosts.end())
      hosts.push_back(rank.host);
  return hosts;
}

std::vector<std::string> remote_command(const std::string& rsh_agent, const std::string& host,
                                        const std::string& command) {
  std::vector<std::string> words;
  std::istringstream agent(rsh_agent.empty() ? "ssh -o BatchMode=yes -o ConnectTimeout=10"
                                             : rsh_agent);
  for (std::string word; agent >> word;) words.push_back(word);
  words.push_back(host);
  words.push_back(command);
  return words;
}

tl::expected<Unit, HostError> stage_on(const std::vector<std::string>& hosts,
                                       const Staging& staging) {
  if (hosts.empty()) return Unit{};
  const auto own =
      run_command({{staging.worker, "version", "--json"}, ""}, nanos_of_seconds(kAnswerSeconds));
  if (!own) return tl::unexpected<HostError>({"", own.error()});
  std::vector<CommandRequest> requests;
  const std::string script = staging_script(staging);
  for (const std::string& host : hosts)
    requests.push_back({remote_command(staging.rsh_agent, host, "/bin/sh -s"), script});
  const auto answers = run_commands(requests, nanos_of_seconds(kAnswerSeconds));
  for (size_t i = 0; i < hosts.size(); ++i) {
    const auto checked = check_answer(hosts[i], staging, last_line(own->out), answers[i]);
    if (!checked) return tl::unexpected<HostError>({hosts[i], checked.error()});
  }
  return Unit{};
}

void remove_on(const std::vector<std::string>& hosts, const std::vector<std::string>& directories,
               const std::string& rsh_agent) {
  if (hosts.empty()) return;
  std::string command = "rm -rf --";
  for (const std::string& directory : directories) command += " " + shell_quoted(directory);
  std::vector<CommandRequest> requests;
  for (const std::string& host : hosts)
    requests.push_back({remote_command(rsh_agent, host, command), ""});
  run_commands(requests, nanos_of_seconds(kRemoveSeconds));
}

}  // namespace motley
