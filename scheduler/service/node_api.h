#pragma once
// The part of the API that is about nodes: /v1/nodes… for people and agents, /v1/commands… for
// attempts that run commands on nodes (core/FORMATS.md). On the coordinator's thread.

#include <memory>
#include <string>

#include "scheduler/service/access.h"
#include "scheduler/service/coordinator.h"
#include "scheduler/service/http_message.h"
#include "scheduler/service/node_commands.h"
#include "scheduler/service/service_directory.h"

namespace motley {

class NodeApi {
 public:
  /// All outlive it. A name in a path is HttpRequest::name.
  NodeApi(Coordinator& coordinator, const ServiceDirectory& directory, Access& access);

  // People.
  void list(const HttpReply& reply);
  void show(const HttpRequest& request, const HttpReply& reply);
  void drain(const HttpRequest& request, const HttpReply& reply);
  void undrain(const HttpRequest& request, const HttpReply& reply);
  void forget(const HttpRequest& request, const HttpReply& reply);
  // Agents.
  void join(const HttpRequest& request, const HttpReply& reply);
  void report(const HttpRequest& request, const HttpReply& reply);
  void leave(const HttpRequest& request, const HttpReply& reply);
  void orders(const HttpRequest& request, const HttpReply& reply);
  // Attempts.
  void start(const HttpRequest& request, const HttpReply& reply);
  void output(const HttpRequest& request, const HttpReply& reply);

 private:
  /// Shows the node when what was asked of it is on disk.
  Coordinator::Answered then_show(const HttpRequest& request, const HttpReply& reply);
  Result<Unit> check_key(const NodeCommand& command) const;

  Coordinator& coordinator_;
  const ServiceDirectory& directory_;
  Access& access_;
  std::shared_ptr<NodeCommands> commands_;
};

}  // namespace motley
