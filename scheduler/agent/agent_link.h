#pragma once
// Between an agent and its coordinator: two threads that wait for it, and what they share with the
// one that runs commands.

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "scheduler/launch/child_process.h"
#include "scheduler/service/device_watch.h"
#include "scheduler/service/node_json.h"
#include "scheduler/service/service_client.h"

namespace motley {

/// Thread-safe.
class AgentLink {
 public:
  /// What is to be done here.
  struct Wishes {
    std::vector<NodeCommand> start;
    std::vector<AttemptId> end_attempts;
    std::vector<NodeCommand> end_commands;
    std::optional<Error> refusal;  ///< the coordinator will have nothing of us any more
    Nanos heard{0};                ///< when it answered last
  };

  /// `client` outlives it; `woken` becomes readable when there are wishes.
  AgentLink(const ServiceClient& client, NodeJoin join);
  /// Waits for both threads, however long.
  ~AgentLink();

  /// The node is registered: waits ten seconds for it, while it is to `go_on`. kNoDevice,
  /// kNotPermitted.
  Result<Unit> join(const std::function<bool()>& go_on);
  /// Begins to report and to take orders.
  void start();
  /// Both threads are to end; false where one still waits for a coordinator that does not answer,
  /// two seconds later.
  bool stop();
  Result<Unit> leave();

  int wake_fd() const { return wake_.read.get(); }
  Wishes take();
  void add(std::vector<CommandPiece> pieces);
  /// Nothing of the attempt runs here any more.
  void forget(AttemptId attempt);
  std::vector<AttemptId> attempts() const;

 private:
  struct Outbox {
    NodeCommand command;
    std::vector<CommandPiece> pieces;
    size_t received = 0;  ///< by the coordinator
    bool ending = false;
  };

  Result<Unit> join_once() const;
  void report_on();
  void take_orders();
  Result<Unit> report();
  AgentReport next_report() const;
  void understand(const AgentAnswer& answer, const std::vector<AttemptId>& reported);
  void take_order(const nlohmann::json& data);
  void end_thread();
  bool unsent() const;
  void wake();

  const ServiceClient& client_;
  ServiceLine line_;  ///< of reports
  const NodeJoin join_;
  const DeviceWatch watch_;
  Pipe wake_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  int working_ = 0;  ///< of the two threads
  Wishes wishes_;
  std::map<std::string, Outbox> outboxes_;  ///< by command, until its attempt is forgotten
  std::thread reporter_, listener_;
};

}  // namespace motley
