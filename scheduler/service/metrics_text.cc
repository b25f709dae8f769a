#include "scheduler/service/metrics_text.h"

#include <cstdio>
#include <map>
#include <utility>
#include <vector>

namespace motley {
namespace {

const std::map<std::string, int> kNone{{"free", 0}, {"given", 0}, {"unavailable", 0}};  // of a type

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

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

/// One gauge with a line for each of `samples`.
using Samples = std::vector<std::pair<std::string, double>>;
std::string gauge_text(const std::string& name, const std::string& help, const Samples& samples) {
  std::string text = head(name, "gauge", help);
  for (const auto& [labels, value] : samples)
    text += name + "{" + labels + "} " + number(value) + "\n";
  return text;
}

std::string devices_text(const FleetView& fleet) {
  std::map<std::string, std::map<std::string, int>> types;
  for (const DeviceView& view : fleet.devices) {
    auto& counts = types.try_emplace(view.device.type, kNone).first->second;
    const auto found = counts.find(view.state);
    ++(found == counts.end() ? counts.at("unavailable") : found->second);
  }
  Samples samples;
  for (const auto& [type, counts] : types)
    for (const auto& [state, count] : counts)
      samples.emplace_back("type=" + quoted(type) + ",state=\"" + state + "\"", count);
  return gauge_text(
      "motley_devices",
      "Devices of the fleet, by type; unavailable: nobody has them nor gets them now.", samples);
}

std::string nodes_text(const Coordinator& coordinator) {
  std::map<std::string, int> counts{{"ready", 0}, {"awaited", 0}, {"draining", 0}, {"lost", 0}};
  for (const auto& [name, node] : coordinator.nodes()) ++counts[node.state_name()];
  Samples samples;
  for (const auto& [state, count] : counts) samples.emplace_back("state=\"" + state + "\"", count);
  return gauge_text("motley_nodes", "Nodes that are known, by state.", samples);
}

/// Of jobs that have devices: as many as there can be devices at most.
std::string progress_text(const FleetView& fleet) {
  Samples steps, speeds;
  for (const auto& [id, job] : fleet.jobs) {
    if (!job.progress) continue;
    const std::string labels = "job=\"" + std::to_string(id) + "\",name=" + quoted(job.name);
    if (job.progress->step) steps.emplace_back(labels, static_cast<double>(*job.progress->step));
    if (job.progress->samples_per_second)
      speeds.emplace_back(labels, *job.progress->samples_per_second);
  }
  return gauge_text("motley_job_step", "Steps that a running job has done.", steps) +
         gauge_text("motley_job_samples_per_second", "How quick a running job is.", speeds);
}

std::string waiting_text(const FleetView& fleet) {
  Samples shares;
  for (const DeviceView& view : fleet.devices)
    if (const auto time = view.rank ? view.rank->time() : std::nullopt)
      shares.emplace_back("device=" + quoted(view.device.id) + ",type=" + quoted(view.device.type) +
                              ",job=\"" + std::to_string(view.job) + "\"",
                          waiting_share(*time));
  return gauge_text("motley_device_waiting_share",
                    "Of the last steps' time, what a device in use waited for others.", shares);
}

/// Under the names that NVIDIA's exporter has, so that dashboards made for it show them.
std::string gauges_text(const FleetView& fleet) {
  constexpr double kMebibyte = 1 << 20;
  Samples busy, temperatures, memory;
  for (const DeviceView& view : fleet.devices) {
    if (!view.gauge) continue;
    const std::string labels = "device=" + quoted(view.device.id) +
                               ",UUID=" + quoted(view.gauge->uuid) +
                               ",Hostname=" + quoted(view.device.host);
    if (view.gauge->utilisation) busy.emplace_back(labels, *view.gauge->utilisation);
    if (view.gauge->temperature) temperatures.emplace_back(labels, *view.gauge->temperature);
    if (view.gauge->memory_used)
      memory.emplace_back(labels,
                          static_cast<double>(view.gauge->memory_used->value()) / kMebibyte);
  }
  if (busy.empty() && temperatures.empty() && memory.empty()) return "";
  return gauge_text("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", busy) +
         gauge_text("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", temperatures) +
         gauge_text("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", memory);
}

}  // namespace

std::string metrics_text(const Coordinator& coordinator, const FleetView& fleet) {
  const Coordinator::Counters& counters = coordinator.counters();
  std::string text = head("motley_jobs", "gauge", "Jobs there are, by state.");
  for (const auto& [state, count] : counters.jobs)
    text += "motley_jobs{state=\"" + std::string(name_of(state)) + "\"} " + std::to_string(count) +
            "\n";
  text += devices_text(fleet);
  text += nodes_text(coordinator);
  text += progress_text(fleet);
  text += waiting_text(fleet);
  text += gauges_text(fleet);
  text += head("motley_submissions_total", "counter", "Submissions acknowledged since the start.") +
          "motley_submissions_total " + std::to_string(counters.submissions) + "\n";
  text += head("motley_decisions_total", "counter", "Decisions of the policy since the start.") +
          "motley_decisions_total " + std::to_string(counters.decisions) + "\n";
  text += head("motley_deciding_seconds_total", "counter", "Time the decisions took.") +
          "motley_deciding_seconds_total " + std::to_string(seconds_of(counters.deciding)) + "\n";
  return text;
}

}  // namespace motley
