#include "scheduler/service/metrics_text.h"

#include <map>

namespace motley {
namespace {

/// A label's value, with what would end it escaped.
std::string quoted(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return text + "\"";
}

std::string head(const std::string& name, const std::string& type, const std::string& help) {
  return "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

std::string devices_text(const DevicePools& devices) {
  std::map<std::pair<std::string, bool>, int> counts;
  for (size_t i = 0; i < devices.fleet().devices.size(); ++i)
    ++counts[{devices.fleet().devices[i].type, devices.owner_of(i) != 0}];
  std::string text = head("motley_devices", "gauge", "Devices of the fleet, by type.");
  for (const auto& [what, count] : counts)
    text += "motley_devices{type=" + quoted(what.first) + ",state=\"" +
            (what.second ? "given" : "free") + "\"} " + std::to_string(count) + "\n";
  return text;
}

std::string nodes_text(const Coordinator& coordinator) {
  std::map<std::string, int> counts;
  for (const auto& [name, node] : coordinator.nodes()) ++counts[node.state_name()];
  std::string text = head("motley_nodes", "gauge", "Nodes that are known, by state.");
  for (const auto& [state, count] : counts)
    text += "motley_nodes{state=\"" + state + "\"} " + std::to_string(count) + "\n";
  return text;
}

}  // namespace

std::string metrics_text(const Coordinator& coordinator) {
  const Coordinator::Counters& counters = coordinator.counters();
  std::string text = head("motley_jobs", "gauge", "Jobs there are, by state.");
  for (const auto& [state, count] : counters.jobs)
    text += "motley_jobs{state=\"" + std::string(name_of(state)) + "\"} " + std::to_string(count) +
            "\n";
  text += devices_text(coordinator.devices());
  text += nodes_text(coordinator);
  text += head("motley_submissions_total", "counter", "Submissions acknowledged since the start.") +
          "motley_submissions_total " + std::to_string(counters.submissions) + "\n";
  text += head("motley_decisions_total", "counter", "Decisions of the policy since the start.") +
          "motley_decisions_total " + std::to_string(counters.decisions) + "\n";
  text += head("motley_deciding_seconds_total", "counter", "Time the decisions took.") +
          "motley_deciding_seconds_total " + std::to_string(seconds_of(counters.deciding)) + "\n";
  return text;
}

}  // namespace motley
