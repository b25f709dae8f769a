#include "scheduler/service/node_api.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "core/json_fields.h"
#include "core/units.h"
#include "scheduler/launch/this_host.h"
#include "scheduler/service/attempt_files.h"
#include "scheduler/service/node_json.h"
#include "scheduler/service/replies.h"

namespace motley {
namespace {

using nlohmann::json;

/// This machine's devices may be the coordinator's own already.
Result<Unit> check_other_machine(const Coordinator& coordinator, const std::string& name) {
  for (const auto& [known, node] : coordinator.nodes())
    if (node.is_own() && known != name && is_this_host(known) && is_this_host(name))
      return fail(ErrorCode::kNotPermitted,
                  "the coordinator gives out the devices of its own machine, which is " + name +
                      ": start it with --no-local to have an agent do so");
  return Unit{};
}

}  // namespace

NodeApi::NodeApi(Coordinator& coordinator, const ServiceDirectory& directory, Access& access)
    : coordinator_(coordinator),
      directory_(directory),
      access_(access),
      commands_(std::make_shared<NodeCommands>(
          coordinator.clock(), [&coordinator](AttemptId attempt, const std::string& node) {
            return coordinator.may_run(attempt, node);
          })) {}

// --- people ---

void NodeApi::list(const HttpReply& reply) {
  json nodes = json::array();
  for (const auto& [name, node] : coordinator_.nodes())
    nodes.push_back(to_json(node, coordinator_.devices(), coordinator_.clock().now()));
  reply(json_response({{"nodes", nodes}}));
}

void NodeApi::show(const HttpRequest& request, const HttpReply& reply) {
  const auto found = coordinator_.nodes().find(request.name);
  if (found == coordinator_.nodes().end())
    return refuse(
        reply,
        {ErrorCode::kNotFound, "there is no node " + request.name + ": see motley nodes", {}});
  reply(json_response(to_json(found->second, coordinator_.devices(), coordinator_.clock().now())));
}

Coordinator::Answered NodeApi::then_show(const HttpRequest& request, const HttpReply& reply) {
  return [this, request, reply](Result<Unit> done) {
    if (!done) return refuse(reply, done.error());
    show(request, reply);
  };
}

void NodeApi::drain(const HttpRequest& request, const HttpReply& reply) {
  DrainRequest drain;
  drain.by = request.caller.user;
  drain.reason = text_in(request, "reason");
  if (const std::string text = text_in(request, "deadline"); !text.empty()) {
    const auto deadline = parse_duration(text);
    if (!deadline)
      return refuse(reply, {ErrorCode::kUsage, "deadline: " + deadline.error().message, {}});
    drain.deadline = *deadline;
  }
  coordinator_.drain(request.name, drain, then_show(request, reply));
}

void NodeApi::undrain(const HttpRequest& request, const HttpReply& reply) {
  coordinator_.undrain(request.name, then_show(request, reply), request.caller.user);
}

void NodeApi::forget(const HttpRequest& request, const HttpReply& reply) {
  const auto answer = [name = request.name, reply](const Result<Unit>& done) {
    if (!done) return refuse(reply, done.error());
    reply(json_response({{"name", name}, {"forgotten", true}}));
  };
  coordinator_.forget_node(request.name, answer, request.caller.user);
}

// --- agents ---

void NodeApi::join(const HttpRequest& request, const HttpReply& reply) {
  const auto document = parse_json(request.body);
  auto join = document ? node_join_from_json(request.name, *document)
                       : Result<NodeJoin>(fail(document.error()));
  if (!join) return reply(error_response(status_of_refused(join.error().code), join.error()));
  if (const auto other = check_other_machine(coordinator_, request.name); !other)
    return refuse(reply, other.error());
  // Whoever is refused has not used the token.
  if (const auto fine = coordinator_.may_join(*join); !fine) return refuse(reply, fine.error());
  access_.bind(request.caller, request.name,
               [this, request, reply, join = std::move(*join)](const Result<Unit>& bound) mutable {
                 if (!bound && bound.error().code == ErrorCode::kNotPermitted)
                   return reply(error_response(403, bound.error()));
                 if (!bound) return refuse(reply, bound.error());
                 coordinator_.join(std::move(join), then_show(request, reply));
               });
}

void NodeApi::report(const HttpRequest& request, const HttpReply& reply) {
  const auto document = parse_json(request.body);
  const auto report = document ? agent_report_from_json(request.name, *document)
                               : Result<AgentReport>(fail(document.error()));
  if (!report) return reply(error_response(400, report.error()));
  auto allowed = coordinator_.hear(report->life);
  if (!allowed && allowed.error().code == ErrorCode::kNoDevice)
    return reply(error_response(503, allowed.error()));
  if (!allowed) return refuse(reply, allowed.error());
  commands_->told(request.name, report->pieces);
  reply(json_response(to_json(AgentAnswer{std::move(*allowed), commands_->settle(request.name)})));
}

void NodeApi::leave(const HttpRequest& request, const HttpReply& reply) {
  coordinator_.leave(request.name, text_in(request, "session"), then_show(request, reply));
}

void NodeApi::orders(const HttpRequest& request, const HttpReply& reply) {
  const auto found = coordinator_.nodes().find(request.name);
  const std::string session = text_in(request, "session");
  if (found == coordinator_.nodes().end() || session.empty() || found->second.session != session)
    return refuse(
        reply, {ErrorCode::kNotFound, "no agent of node " + request.name + " has joined so", {}});
  HttpResponse response;
  response.events = NodeCommands::orders(commands_, request.name);
  reply(std::move(response));
}

// --- attempts ---

Result<Unit> NodeApi::check_key(const NodeCommand& command) const {
  MOTLEY_TRY(const bool known,
             AttemptFiles(directory_.attempt(command.attempt)).key_matches(command.key));
  if (known && coordinator_.may_run(command.attempt, command.node)) return Unit{};
  return fail(ErrorCode::kNotPermitted, "attempt " + std::to_string(command.attempt.epoch.value()) +
                                            " of job " + std::to_string(command.attempt.job) +
                                            " has no business on node " + command.node);
}

void NodeApi::start(const HttpRequest& request, const HttpReply& reply) {
  const auto document = parse_json(request.body);
  auto command =
      document ? node_command_from_json(*document) : Result<NodeCommand>(fail(document.error()));
  if (!command) return reply(error_response(400, command.error()));
  if (const auto fine = check_key(*command); !fine) return refuse(reply, fine.error());
  const std::string id = command->id;
  commands_->start(std::move(*command));
  reply(json_response({{"id", id}}, 201));
}

void NodeApi::output(const HttpRequest& request, const HttpReply& reply) {
  const std::string& id = request.name;
  if (!commands_->knows(id))
    return refuse(reply, {ErrorCode::kNotFound, "there is no command " + id, {}});
  HttpResponse response;
  response.events = NodeCommands::output(commands_, id);
  reply(std::move(response));
}

}  // namespace motley
