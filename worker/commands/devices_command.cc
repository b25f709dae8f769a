#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "core/or_null.h"
#include "core/spec/json.h"
#include "core/units.h"
#include "kernels/device.h"
#include "worker/commands/commands.h"
#include "worker/train/world.h"

namespace motley {
namespace {

/// This machine as a fleet: its GPUs, or its CPU where none can be used.
FleetSpec local_fleet(const std::vector<FoundDevice>& found) {
  bool gpu = false;
  for (const FoundDevice& device : found)
    gpu = gpu || (device.kind == DeviceKind::kCuda && device.unfit.empty());
  FleetSpec fleet;
  fleet.source = "this machine";
  for (const FoundDevice& device : found) {
    if (gpu != (device.kind == DeviceKind::kCuda) || !device.unfit.empty()) continue;
    DeviceSpec spec;
    spec.host = system_host_name();
    spec.id = spec.host + "/" + std::to_string(fleet.devices.size());
    spec.kind = device.kind;
    spec.type = gpu ? device.name : "cpu";
    spec.uuid = device.uuid;
    spec.threads = gpu ? 1 : device.cores;
    fleet.devices.push_back(spec);
  }
  return fleet;
}

const char* name_of(DeviceKind kind) { return kind == DeviceKind::kCuda ? "cuda" : "cpu"; }

nlohmann::json status_json(const std::optional<GpuStatus>& status) {
  if (!status) return nullptr;
  return {{"sm_clock_mhz", or_null(status->sm_clock)},
          {"max_sm_clock_mhz", or_null(status->most_sm_clock)},
          {"power_watts", or_null(status->power)},
          {"power_limit_watts", or_null(status->power_limit)},
          {"temperature_celsius", or_null(status->temperature)},
          {"pcie_width", or_null(status->pcie_width)},
          {"max_pcie_width", or_null(status->most_pcie_width)},
          {"pcie_generation", or_null(status->pcie_generation)},
          {"max_pcie_generation", or_null(status->most_pcie_generation)},
          {"throttled_by", status->throttled_by}};
}

/// "1200 of 1980 MHz": now and at most, as far as they are told.
template <class T>
std::string of_most(const std::optional<T>& now, const std::optional<T>& most, const char* unit) {
  std::ostringstream text;
  if (now) text << ", " << *now;
  if (now && most) text << " of " << *most;
  if (now) text << " " << unit;
  return text.str();
}

/// "CUDA 0, sm_90, 1200 of 1980 MHz, …, slowed by power cap".
std::string status_text(const FoundDevice& device) {
  std::string text = "CUDA " + std::to_string(device.cuda_index) + ", " + device.capability;
  if (!device.status) return text;
  const GpuStatus& status = *device.status;
  text += of_most(status.sm_clock, status.most_sm_clock, "MHz");
  text += of_most(status.power, status.power_limit, "W");
  text += of_most(status.temperature, {}, "degrees C");
  text += of_most(status.pcie_width, status.most_pcie_width, "PCIe lanes");
  text += of_most(status.pcie_generation, status.most_pcie_generation, "PCIe generation");
  for (size_t i = 0; i < status.throttled_by.size(); ++i)
    text += (i == 0 ? ", slowed by " : " and ") + status.throttled_by[i];
  return text;
}

/// Fleet and list: the one to plan with, the other for people and their scripts.
nlohmann::json as_json(const std::vector<FoundDevice>& found, const std::string& note) {
  nlohmann::json rows = nlohmann::json::array();
  for (const FoundDevice& device : found)
    rows.push_back({{"kind", name_of(device.kind)},
                    {"name", device.name},
                    {"uuid", device.uuid},
                    {"bus_id", device.bus_id},
                    {"capability", device.capability},
                    {"cores", device.cores},
                    {"memory", device.memory.value()},
                    {"free_memory", device.free_memory.value()},
                    {"cuda_index",
                     device.cuda_index < 0 ? nlohmann::json() : nlohmann::json(device.cuda_index)},
                    {"unfit", device.unfit},
                    {"status", status_json(device.status)}});
  return {{"fleet", to_json(local_fleet(found))}, {"devices", rows}, {"note", note}};
}

void print_row(const char* kind, const std::string& name, const std::string& uuid,
               const std::string& bus_id, const std::string& free, const std::string& memory) {
  std::printf("%-5s %-44s %-41s %-16s %10s %10s\n", kind, name.c_str(), uuid.c_str(),
              bus_id.c_str(), free.c_str(), memory.c_str());
}

Result<Unit> run_devices(bool json) {
  std::string note;
  const std::vector<FoundDevice> found = discover_devices(&note);
  if (json) {
    std::printf("%s\n", as_json(found, note).dump().c_str());
    return Unit{};
  }
  print_row("kind", "name", "UUID", "bus id", "free", "memory");
  for (const FoundDevice& device : found) {
    print_row(name_of(device.kind), device.name, device.uuid.empty() ? "-" : device.uuid,
              device.bus_id.empty() ? "-" : device.bus_id, format_bytes(device.free_memory),
              format_bytes(device.memory));
    if (device.kind == DeviceKind::kCuda) std::printf("      %s\n", status_text(device).c_str());
    if (!device.unfit.empty()) std::printf("      not used: %s\n", device.unfit.c_str());
  }
  if (!note.empty()) std::printf("%s\n", note.c_str());
  return Unit{};
}

}  // namespace

void add_devices_command(CLI::App& app, Result<Unit>* outcome) {
  auto* command = app.add_subcommand("devices", "The devices of this machine");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "One object (core/FORMATS.md)");
  command->callback([=] { *outcome = run_devices(*json); });
}

}  // namespace motley
