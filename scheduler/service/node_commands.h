#pragma once
// Commands that attempts run on other nodes: from `motley rsh`, which waits for what they print, to
// the node's agent, which runs them. The agent knows what became of a command; this is what it has
// told so far. A coordinator that is restarted knows none: `motley rsh` asks again, the agent goes
// on with what it runs and tells it all once more. One thread.

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/clock.h"
#include "scheduler/service/attempt_launcher.h"
#include "scheduler/service/http_message.h"

namespace motley {

struct NodeCommand {
  std::string id;  ///< chosen by who asks
  AttemptId attempt;
  std::string node;
  std::string command;  ///< for /bin/sh -c
  std::string input;
  std::string key;  ///< of the attempt, by whoever asks; agents are not told it
};

/// Something that a command has printed, or its end.
struct CommandPiece {
  std::string command;
  int number = 0;      ///< from 0
  std::string stream;  ///< "out", "err"; "end"
  std::string text;
  int status = 0;  ///< at its end, as a shell would say it

  bool is_end() const { return stream == "end"; }
};

class NodeCommands {
 public:
  /// Whether an attempt's processes may be on a node now.
  using MayRun = std::function<bool(AttemptId attempt, const std::string& node)>;
  NodeCommands(const Clock& clock, MayRun may_run) : clock_(clock), may_run_(std::move(may_run)) {}

  /// Nothing where the command is known.
  void start(NodeCommand command);
  bool knows(const std::string& id) const { return commands_.count(id) != 0; }
  /// Pieces may come again; those of unknown commands are passed over.
  void told(const std::string& node, const std::vector<CommandPiece>& pieces);

  struct ForNode {
    std::map<std::string, int> received;  ///< pieces, by command
    std::vector<std::string> unwanted;    ///< commands whose output nobody waits for any more
  };
  /// Of the commands of a node; what is over is forgotten with that.
  ForNode settle(const std::string& node);

  /// Events for an agent: `start` with a command, each once, and `tick` in between. Outlives `all`
  /// in a connection that is being closed.
  static std::shared_ptr<EventSource> orders(const std::shared_ptr<NodeCommands>& all,
                                             const std::string& node);
  /// Events for who waits: `piece`, from the first on, to the end.
  static std::shared_ptr<EventSource> output(const std::shared_ptr<NodeCommands>& all,
                                             const std::string& id);

 private:
  class Orders;
  class Output;
  struct Entry {
    NodeCommand command;
    std::vector<CommandPiece> pieces;
    int readers = 0;
    Nanos left{0};  ///< when the last reader went

    bool is_over() const { return !pieces.empty() && pieces.back().is_end(); }
  };

  const Clock& clock_;
  MayRun may_run_;
  std::map<std::string, Entry> commands_;
};

}  // namespace motley
