#pragma once
// The commands that attempts run on this node, as a remote shell would run them. One thread, which
// must be the one that stays: a command dies with it.

#include <poll.h>
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "core/result.h"
#include "scheduler/launch/child_process.h"
#include "scheduler/service/node_commands.h"

namespace motley {

class CommandRunner {
 public:
  /// `owner` tells what this runner has started from what others have: all it starts is marked by
  /// it in its environment.
  explicit CommandRunner(std::string owner);

  /// Starts `/bin/sh -c`, in a session of its own. What becomes of it, also where it cannot be
  /// started, comes from read().
  void start(const NodeCommand& command);
  void append_polled(std::vector<pollfd>* polled) const;
  /// What the commands have printed since, and their ends.
  std::vector<CommandPiece> read();

  /// Kills all processes of an attempt, a command, or all there are of this owner, an earlier
  /// runner's too; false where some do not go. Blocks, 10 s at most.
  bool end(AttemptId attempt);
  bool end(const NodeCommand& command);
  bool end_all();

 private:
  struct Running {
    std::string id;
    ChildProcess child;
    Fd out, err;
    int pieces = 0;
    size_t bytes = 0;
  };
  Result<Unit> spawn(const NodeCommand& command);
  void read_stream(Running& running, Fd Running::*from, const char* name,
                   std::vector<CommandPiece>* pieces);
  void reap_orphans();

  std::string mark_;  ///< "MOTLEY_NODE_COMMAND=owner/"
  std::map<std::string, Running> running_;
  std::vector<CommandPiece> failed_;
};

}  // namespace motley
