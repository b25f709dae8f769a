// nodes, drain, undrain, forget: the machines of the service.

#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/units.h"
#include "scheduler/cli/service_command.h"
#include "scheduler/report/table.h"
#include "scheduler/run/terminal.h"
#include "scheduler/service/http_message.h"
#include "scheduler/service/service_client.h"

namespace motley {
namespace {

using nlohmann::json;

/// "zone=a, rack=7"
std::string labels_text(const json& labels) {
  std::string text;
  for (const auto& [name, value] : labels.items())
    text += (text.empty() ? "" : ", ") + name + "=" + value.get<std::string>();
  return text;
}

/// Why it is as it is, and what becomes of it.
std::string why_text(const json& node) {
  std::string text = node.value("state", "") == "lost" ? node.value("cause", "") : "";
  if (node.value("draining", false)) {
    if (const std::string reason = node.value("reason", ""); !reason.empty())
      text += (text.empty() ? "" : "; ") + reason;
    if (node["deadline_seconds"].is_number())
      text += (text.empty() ? "" : "; ") + std::string("emptied in ") +
              format_seconds(node["deadline_seconds"].get<double>());
  }
  for (const json& device : node["devices"])
    if (device.value("aside", false))
      text += (text.empty() ? "" : "; ") + device.value("id", "") +
              " is given to nobody: an attempt on it is over, but not all of its processes have "
              "ended";
  return text;
}

std::string heartbeat_text(const json& node) {
  if (!node["heartbeat_seconds"].is_number()) return "-";
  return format_seconds(node["heartbeat_seconds"].get<double>());
}

void print_nodes(const json& nodes) {
  TextTable table({{"node", Align::kLeft},
                   {"state", Align::kLeft},
                   {"devices", Align::kRight},
                   {"given", Align::kRight},
                   {"heard", Align::kRight},
                   {"labels", Align::kLeft},
                   {"", Align::kLeft}});
  for (const json& node : nodes)
    table.add_row({node.value("name", ""), node.value("state", ""),
                   std::to_string(node["devices"].size()), std::to_string(node.value("given", 0)),
                   heartbeat_text(node), labels_text(node["labels"]), why_text(node)});
  std::printf("%s", shown_on(stdout, table.to_string()).c_str());
}

class NodesCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.flag("--json", "one JSON object", &json_);
    declare_service(line, &service_);
  }
  Result<int> run() override {
    MOTLEY_TRY(const ServiceClient client, client_of(service_));
    MOTLEY_TRY(const json answer, client.get("/v1/nodes"));
    if (json_)
      std::printf("%s\n", answer.dump().c_str());
    else
      print_nodes(answer["nodes"]);
    return 0;
  }

 private:
  ServiceChoice service_;
  bool json_ = false;
};

class NodeRequestCommand : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("NODE", "its name", &node_).flag("--json", "one JSON object", &json_);
    declare_service(line, &service_);
  }
  Result<int> run() override {
    MOTLEY_TRY(const ServiceClient client, client_of(service_));
    MOTLEY_TRY(const json node,
               client.post("/v1/nodes/" + percent_encoded(node_) + "/" + request()));
    if (json_)
      std::printf("%s\n", node.dump().c_str());
    else
      print_nodes(json::array({node}));
    return 0;
  }

 private:
  virtual std::string request() const = 0;

  ServiceChoice service_;
  std::string node_;
  bool json_ = false;
};

class DrainCommand final : public NodeRequestCommand {
 public:
  void declare(CommandLine& line) override {
    NodeRequestCommand::declare(line);
    line.option("--deadline", "TIME",
                "what still runs there then is stopped with a checkpoint, e.g. 10m", &deadline_)
        .option("--reason", "TEXT", "shown to who asks", &reason_);
  }

 private:
  std::string request() const override {
    std::string request = "drain?reason=" + percent_encoded(reason_);
    if (!deadline_.empty()) request += "&deadline=" + percent_encoded(deadline_);
    return request;
  }

  std::string deadline_, reason_;
};

class UndrainCommand final : public NodeRequestCommand {
  std::string request() const override { return "undrain"; }
};

class ForgetCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("NODE", "its name; it is lost", &node_)
        .flag("--json", "one JSON object", &json_);
    declare_service(line, &service_);
  }
  Result<int> run() override {
    MOTLEY_TRY(const ServiceClient client, client_of(service_));
    MOTLEY_TRY(const json answer, client.remove("/v1/nodes/" + percent_encoded(node_)));
    if (json_)
      std::printf("%s\n", answer.dump().c_str());
    else
      std::printf("node %s is forgotten\n", node_.c_str());
    return 0;
  }

 private:
  ServiceChoice service_;
  std::string node_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_nodes_command() { return std::make_unique<NodesCommand>(); }
std::unique_ptr<Command> make_drain_command() { return std::make_unique<DrainCommand>(); }
std::unique_ptr<Command> make_undrain_command() { return std::make_unique<UndrainCommand>(); }
std::unique_ptr<Command> make_forget_command() { return std::make_unique<ForgetCommand>(); }

}  // namespace motley
