#pragma once
// What must be true of the other hosts before ranks are started on them: reachable, with our
// worker, of our version, with the attempt's directories and files in place.

#include <string>
#include <vector>

#include "core/plan.h"
#include "core/result.h"

namespace motley {

/// Hosts of these ranks that are not this machine, in order of first appearance.
std::vector<std::string> remote_hosts(const std::vector<RankPlacement>& ranks);

struct StagedFile {
  std::string path;  ///< absolute, the same on every host
  std::string text;
};

struct Staging {
  std::vector<std::string> directories;  ///< made where missing
  std::vector<StagedFile> files;         ///< replaced as a whole, readable by this user only
  std::string worker;                    ///< path of motley-worker
  std::string rsh_agent;                 ///< empty: ssh
  std::vector<std::string> stale = {};   ///< files of an earlier time, removed
};

struct HostError {
  std::string host;  ///< the one to blame; empty: this one
  Error error;
};

/// Does it on all hosts at once. kNoDevice naming a host that does not answer, kBrokenInstall
/// naming one without our worker or with another version of it or of MPI.
tl::expected<Unit, HostError> stage_on(const std::vector<std::string>& hosts,
                                       const Staging& staging);

/// Removes directories there; a host that does not answer keeps them.
void remove_on(const std::vector<std::string>& hosts, const std::vector<std::string>& directories,
               const std::string& rsh_agent);

/// The command that runs `words` on `host` through the agent.
std::vector<std::string> remote_command(const std::string& rsh_agent, const std::string& host,
                                        const std::string& command);

/// In single quotes, for a shell.
std::string shell_quoted(const std::string& text);

/// A command as one would type it: words quoted where a shell would take them for something else.
std::string shell_command(const std::vector<std::string>& words);

}  // namespace motley
