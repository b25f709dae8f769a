#include "scheduler/run/find_fleet.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/json_fields.h"
#include "core/spec/json.h"
#include "core/units.h"
#include "scheduler/launch/command.h"
#include "scheduler/launch/remote_hosts.h"
#include "scheduler/launch/this_host.h"
#include "scheduler/launch/worker_program.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr double kDevicesSeconds = 60;
constexpr int kShellNotFound = 127;
constexpr int kMostSlots = 1'000'000;

/// A word as it stands, where YAML takes it for one; else in quotes.
std::string scalar(const std::string& text) {
  const bool plain = !text.empty() && std::isalpha(static_cast<unsigned char>(text.front())) != 0 &&
                     std::all_of(text.begin(), text.end(), [](unsigned char c) {
                       return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
                     });
  return plain ? text : json(text).dump();
}

std::string device_line(const DeviceSpec& device) {
  std::string text = "{kind: " + std::string(device.kind == DeviceKind::kCuda ? "cuda" : "cpu") +
                     ", type: " + scalar(device.type);
  if (device.kind == DeviceKind::kCpu) text += ", threads: " + std::to_string(device.threads);
  if (!device.uuid.empty()) text += ", uuid: " + scalar(device.uuid);
  if (device.memory) text += ", memory: " + std::to_string(device.memory->value()) + "B";
  return text + "}";
}

Error without_answer(const std::string& host, const Result<CommandOutput>& answer,
                     const std::string& worker) {
  if (!answer) return {ErrorCode::kBrokenInstall, answer.error().message, {}};
  if (answer->timed_out)
    return {ErrorCode::kNoDevice, "host " + host + " does not answer within 60 s", {}};
  const std::string said = last_words_of_worker(answer->err);
  if (answer->status.status == kShellNotFound)
    return {ErrorCode::kBrokenInstall,
            "host " + host + " has no " + worker + " (" + said + "); install Motley there, too",
            {}};
  return {ErrorCode::kNoDevice,
          "host " + host + " does not tell its devices: " +
              (said.empty() ? "the remote shell ended with " + answer->status.to_string() : said),
          {}};
}

std::string remark_of(const json& device) {
  std::string text = device.value("name", "");
  const int64_t memory = device.value("memory", int64_t{0});
  if (memory > 0) text += (text.empty() ? "" : ", ") + format_bytes(Bytes(memory));
  return text;
}

/// From `motley-worker devices --json` of that host.
Result<FoundHost> host_of(const HostToAsk& asked, const std::string& answer) {
  MOTLEY_TRY(const json document, parse_json(answer));
  FoundHost host{asked.name, asked.slots, {}, {}, ""};
  MOTLEY_TRY(host.fleet, fleet_from_json(document.value("fleet", json())));
  for (const json& device : document.value("devices", json::array()))
    if (device.value("unfit", "").empty()) host.remarks.push_back(remark_of(device));
  host.remarks.resize(host.fleet.devices.size());
  const auto devices = static_cast<int>(host.fleet.devices.size());
  if (devices == 0)
    return fail(ErrorCode::kNoDevice, "host " + asked.name + " has no device to compute on");
  if (host.slots == 0) host.slots = devices;
  if (host.slots < devices) {
    host.fleet.devices.resize(static_cast<size_t>(host.slots));
    host.remark = "has " + std::to_string(devices) + " devices; the first of them were asked for";
  }
  return host;
}

}  // namespace

Result<std::vector<HostToAsk>> parse_hosts(const std::string& text) {
  std::vector<HostToAsk> hosts;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const size_t colon = word.find(':');
    HostToAsk host{word.substr(0, colon), 0};
    if (colon != std::string::npos) {
      const char* end = word.data() + word.size();
      const auto parsed = std::from_chars(word.data() + colon + 1, end, host.slots);
      if (parsed.ec != std::errc() || parsed.ptr != end || host.slots < 1 ||
          host.slots > kMostSlots)
        host.name.clear();
    }
    if (host.name.empty() || host.name.front() == '-')
      return fail(ErrorCode::kUsage,
                  "--hosts: expected hosts such as a1,r1:4, found '" + word + "'");
    const bool twice = std::any_of(hosts.begin(), hosts.end(),
                                   [&](const HostToAsk& other) { return other.name == host.name; });
    if (twice) return fail(ErrorCode::kUsage, "--hosts: " + host.name + " is named twice");
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) return fail(ErrorCode::kUsage, "--hosts: expected hosts such as a1,r1:4");
  return hosts;
}

Result<std::vector<FoundHost>> ask_hosts(const std::vector<HostToAsk>& hosts,
                                         const std::string& rsh_agent) {
  MOTLEY_TRY(const std::string worker, worker_program());
  std::vector<CommandRequest> requests;
  for (const HostToAsk& host : hosts) {
    if (is_this_host(host.name))
      requests.push_back({{worker, "devices", "--json"}, ""});
    else
      requests.push_back(
          {remote_command(rsh_agent, host.name, shell_quoted(worker) + " devices --json"), ""});
  }
  const auto answers = run_commands(requests, nanos_of_seconds(kDevicesSeconds));
  std::vector<FoundHost> found;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const auto& answer = answers[i];
    if (!answer || answer->timed_out || !answer->status.ok())
      return fail(without_answer(hosts[i].name, answer, worker));
    MOTLEY_TRY(FoundHost host, host_of(hosts[i], last_line(answer->out)));
    found.push_back(std::move(host));
  }
  return found;
}

std::vector<FoundHost> hosts_of_slurm(const std::vector<SlurmNode>& nodes,
                                      const DeviceCatalog& catalog) {
  std::vector<FoundHost> hosts;
  for (const SlurmNode& node : nodes) {
    FoundHost host{node.name, 0, {}, {}, node.state};
    for (const SlurmGpus& gpus : node.gpus) {
      DeviceSpec device;
      device.type = gpus.type.empty() ? "gpu" : gpus.type;
      std::string remark = "memory not known";
      if (const auto figures = find_figures(catalog, device); figures) {
        device.memory = (*figures)->memory;
        remark = "memory of " + (*figures)->type;
      }
      host.fleet.devices.insert(host.fleet.devices.end(), static_cast<size_t>(gpus.count), device);
      host.remarks.insert(host.remarks.end(), static_cast<size_t>(gpus.count), remark);
    }
    if (host.fleet.devices.empty()) {
      DeviceSpec device;
      device.kind = DeviceKind::kCpu;
      device.type = "cpu";
      host.fleet.devices = {device};
      host.remarks = {"no GPU"};
    }
    host.slots = static_cast<int>(host.fleet.devices.size());
    hosts.push_back(std::move(host));
  }
  return hosts;
}

std::string fleet_yaml(const std::vector<FoundHost>& hosts) {
  std::string text =
      "# Written by `motley fleet init`; edit it as you like. Types are free names. Each device "
      "may have a price per hour\n"
      "# (price: 1.2) and a limit on its memory (memory: 20GB). Links are measured; to state one "
      "instead:\n"
      "#   links: [{between: [a1, r1], bandwidth: 1.2GB/s, latency: 60us}]\n"
      "version: 1\nnodes:\n";
  for (const FoundHost& host : hosts) {
    text += "  - host: " + scalar(host.name) + (host.remark.empty() ? "" : "    # " + host.remark) +
            "\n    slots: " + std::to_string(host.slots) + "\n    devices:\n";
    for (size_t i = 0; i < host.fleet.devices.size(); ++i)
      text += "      - " + device_line(host.fleet.devices[i]) +
              (host.remarks[i].empty() ? "" : "    # " + host.remarks[i]) + "\n";
  }
  return text;
}

}  // namespace motley
