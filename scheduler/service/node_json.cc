#include "scheduler/service/node_json.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/or_null.h"
#include "core/spec/json.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr size_t kLongestName = 64;
constexpr size_t kMostLabels = 64;

void read_attempt(JsonFields& fields, AttemptId& attempt) {
  fields.read_between("job", attempt.job, 1, INT64_MAX).read("attempt", attempt.epoch);
}

void read_piece(JsonFields& fields, CommandPiece& piece) {
  fields.read("command", piece.command)
      .read_between("number", piece.number, 0, INT32_MAX)
      .read("stream", piece.stream)
      .read("text", piece.text)
      .read("status", piece.status);
}

void read_gauge(JsonFields& fields, DeviceGauge& gauge) {
  fields.read("uuid", gauge.uuid)
      .read("utilisation", gauge.utilisation)
      .read("temperature", gauge.temperature)
      .read("memory_used", gauge.memory_used)
      .read("memory", gauge.memory);
}

json gauge_json(const DeviceGauge& gauge) {
  return {{"uuid", gauge.uuid},
          {"utilisation", or_null(gauge.utilisation)},
          {"temperature", or_null(gauge.temperature)},
          {"memory_used", or_null(gauge.memory_used)},
          {"memory", or_null(gauge.memory)}};
}

json attempts_json(const std::vector<AttemptId>& attempts) {
  json list = json::array();
  for (const AttemptId attempt : attempts) list.push_back(to_json(attempt));
  return list;
}

Result<Unit> check_devices(const NodeJoin& join) {
  if (join.fleet.devices.empty())
    return fail(ErrorCode::kInvalidSpec, "node " + join.name + " has no device");
  for (size_t i = 0; i < join.fleet.devices.size(); ++i) {
    const DeviceSpec& device = join.fleet.devices[i];
    if (device.host != join.name || device.id != join.name + "/" + std::to_string(i))
      return fail(ErrorCode::kInvalidSpec, "device " + device.id + " is not number " +
                                               std::to_string(i) + " of node " + join.name);
  }
  return check_told_apart(join.fleet);
}

Result<Unit> check_labels(const NodeJoin& join) {
  if (join.labels.size() > kMostLabels)
    return fail(ErrorCode::kInvalidSpec,
                "a node has " + std::to_string(kMostLabels) + " labels at most");
  for (const auto& [name, value] : join.labels)
    if (!is_node_name(name) || value.size() > kLongestName)
      return fail(ErrorCode::kInvalidSpec, "label '" + name + "=" + value +
                                               "': expected NAME=VALUE of up to 64 letters, "
                                               "digits, '.', '-', '_' each");
  return Unit{};
}

}  // namespace

bool is_node_name(const std::string& name) {
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  };
  return !name.empty() && name.size() <= kLongestName &&
         std::isalnum(static_cast<unsigned char>(name.front())) != 0 &&
         std::all_of(name.begin(), name.end(), fits);
}

json to_json(AttemptId attempt) {
  return {{"job", attempt.job}, {"attempt", attempt.epoch.value()}};
}

json to_json(const NodeCommand& command) {
  return {{"id", command.id},
          {"job", command.attempt.job},
          {"attempt", command.attempt.epoch.value()},
          {"node", command.node},
          {"command", command.command},
          {"input", command.input}};
}

json to_json(const CommandPiece& piece) {
  return {{"command", piece.command},
          {"number", piece.number},
          {"stream", piece.stream},
          {"text", piece.text},
          {"status", piece.status}};
}

json to_json(const Node& node, const DevicePools& pools, Nanos now) {
  json devices = json::array();
  int given = 0;
  for (size_t i = 0; i < pools.fleet().devices.size(); ++i) {
    const DeviceSpec& device = pools.fleet().devices[i];
    if (device.host != node.name) continue;
    const int64_t owner = pools.owner_of(i);
    given += owner == 0 ? 0 : 1;
    json told = to_json(device);
    told["job"] = owner == 0 ? json(nullptr) : json(owner);
    told["aside"] = pools.is_aside(i);
    devices.push_back(std::move(told));
  }
  json heartbeat = nullptr, deadline = nullptr;
  if (!node.is_own()) heartbeat = seconds_of(now - node.heard);
  if (node.drain_by) deadline = seconds_of(std::max(Nanos(0), *node.drain_by - now));
  return {{"name", node.name},     {"state", node.state_name()},     {"own", node.is_own()},
          {"cause", node.cause},   {"draining", node.draining},      {"reason", node.reason},
          {"labels", node.labels}, {"heartbeat_seconds", heartbeat}, {"deadline_seconds", deadline},
          {"given", given},        {"devices", std::move(devices)}};
}

Result<NodeCommand> node_command_from_json(const json& document) {
  NodeCommand command;
  JsonFields fields(document);
  read_attempt(fields, command.attempt);
  fields.read("id", command.id)
      .read("node", command.node)
      .read("command", command.command)
      .read("input", command.input)
      .read_if("key", command.key);
  MOTLEY_TRY_VOID(fields.done());
  if (!is_node_name(command.id) || command.command.empty())
    return fail(ErrorCode::kUsage, "expected an id and a command");
  return command;
}

Result<CommandPiece> command_piece_from_json(const json& document) {
  CommandPiece piece;
  JsonFields fields(document);
  read_piece(fields, piece);
  MOTLEY_TRY_VOID(fields.done());
  return piece;
}

json to_json(const NodeJoin& join) {
  return {{"session", join.session}, {"fleet", to_json(join.fleet)}, {"labels", join.labels}};
}

Result<NodeJoin> node_join_from_json(const std::string& name, const json& document) {
  if (!is_node_name(name))
    return fail(ErrorCode::kInvalidSpec,
                "'" + name + "' is no name of a node: up to 64 letters, digits, '.', '-', '_'");
  NodeJoin join;
  join.name = name;
  JsonFields fields(document);
  fields.read("session", join.session);
  const json* fleet = fields.member("fleet");
  fields.object("labels", [&](JsonFields& labels) {
    for (const auto& [label, value] : labels.whole().items()) {
      const auto entry = join.labels.try_emplace(label).first;
      labels.read(entry->first.c_str(), entry->second);
    }
  });
  MOTLEY_TRY_VOID(fields.done());
  MOTLEY_TRY(join.fleet, fleet_from_json(*fleet));
  if (join.session.empty()) return fail(ErrorCode::kInvalidSpec, "session: expected a word");
  MOTLEY_TRY_VOID(check_labels(join));
  MOTLEY_TRY_VOID(check_devices(join));
  return join;
}

json to_json(const AgentReport& report) {
  json pieces = json::array();
  for (const CommandPiece& piece : report.pieces) pieces.push_back(to_json(piece));
  json document = {{"session", report.life.session},
                   {"running", attempts_json(report.life.running)},
                   {"pieces", std::move(pieces)}};
  // A coordinator of before there were any takes what it knows.
  if (!report.life.gauges.empty()) document["gauges"] = json::array();
  for (const DeviceGauge& gauge : report.life.gauges)
    document["gauges"].push_back(gauge_json(gauge));
  return document;
}

Result<AgentReport> agent_report_from_json(const std::string& name, const json& document) {
  AgentReport report;
  report.life.name = name;
  JsonFields fields(document);
  fields.read("session", report.life.session)
      .each("running", [&](JsonFields& f) { read_attempt(f, report.life.running.emplace_back()); })
      .each("pieces", [&](JsonFields& f) { read_piece(f, report.pieces.emplace_back()); });
  if (fields.has("gauges"))
    fields.each("gauges", [&](JsonFields& f) { read_gauge(f, report.life.gauges.emplace_back()); });
  MOTLEY_TRY_VOID(fields.done());
  return report;
}

json to_json(const AgentAnswer& answer) {
  return {{"attempts", attempts_json(answer.attempts)},
          {"received", answer.commands.received},
          {"unwanted", answer.commands.unwanted}};
}

Result<AgentAnswer> agent_answer_from_json(const json& document) {
  AgentAnswer answer;
  JsonFields fields(document);
  fields.each("attempts", [&](JsonFields& f) { read_attempt(f, answer.attempts.emplace_back()); })
      .object("received",
              [&](JsonFields& f) {
                for (const auto& [command, count] : f.whole().items()) {
                  const auto entry = answer.commands.received.try_emplace(command).first;
                  f.read(entry->first.c_str(), entry->second);
                }
              })
      .read("unwanted", answer.commands.unwanted);
  MOTLEY_TRY_VOID(fields.done());
  return answer;
}

}  // namespace motley
