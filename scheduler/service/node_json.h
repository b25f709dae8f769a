#pragma once
// Nodes, and what their agents and the coordinator tell each other (core/FORMATS.md, "service
// API").

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/result.h"
#include "scheduler/service/coordinator.h"
#include "scheduler/service/node_commands.h"

namespace motley {

nlohmann::json to_json(AttemptId attempt);
nlohmann::json to_json(const NodeCommand& command);
nlohmann::json to_json(const CommandPiece& piece);
/// As people see it.
nlohmann::json to_json(const Node& node, const DevicePools& devices, Nanos now);

Result<NodeCommand> node_command_from_json(const nlohmann::json& json);
Result<CommandPiece> command_piece_from_json(const nlohmann::json& json);

/// What an agent says when it comes; the node's name is in the target.
nlohmann::json to_json(const NodeJoin& join);
/// kInvalidSpec for devices of another host, and names that are none.
Result<NodeJoin> node_join_from_json(const std::string& name, const nlohmann::json& json);

/// A sign of life, and what commands have printed.
struct AgentReport {
  NodeReport life;
  std::vector<CommandPiece> pieces;
};
nlohmann::json to_json(const AgentReport& report);
Result<AgentReport> agent_report_from_json(const std::string& name, const nlohmann::json& json);

/// The answer to it.
struct AgentAnswer {
  std::vector<AttemptId> attempts;  ///< whose processes may be there
  NodeCommands::ForNode commands;
};
nlohmann::json to_json(const AgentAnswer& answer);
Result<AgentAnswer> agent_answer_from_json(const nlohmann::json& json);

/// 1 to 64 letters, digits, '.', '-', '_', the first a letter or digit.
bool is_node_name(const std::string& name);

}  // namespace motley
