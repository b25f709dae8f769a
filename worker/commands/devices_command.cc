#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/spec/json.h"
#include "core/units.h"
#include "kernels/device.h"
#include "worker/commands/commands.h"
#include "worker/train/world.h"

namespace motley {
namespace {

/// This machine as a fleet: its GPUs, or its CPU where there is none.
FleetSpec local_fleet(const std::vector<FoundDevice>& found) {
  bool gpu = false;
  for (const FoundDevice& device : found) gpu = gpu || device.kind == DeviceKind::kCuda;
  FleetSpec fleet;
  fleet.source = "this machine";
  for (const FoundDevice& device : found) {
    if (gpu != (device.kind == DeviceKind::kCuda)) continue;
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

Result<Unit> run_devices(bool as_json) {
  std::string note;
  const std::vector<FoundDevice> found = discover_devices(&note);
  if (as_json) {
    std::printf("%s\n", to_json(local_fleet(found)).dump().c_str());
    return Unit{};
  }
  for (const FoundDevice& device : found)
    std::printf("%-5s %-44s %-40s %-16s %10s free of %s\n",
                device.kind == DeviceKind::kCuda ? "cuda" : "cpu", device.name.c_str(),
                device.uuid.empty() ? device.capability.c_str() : device.uuid.c_str(),
                device.bus_id.c_str(), format_bytes(device.free_memory).c_str(),
                format_bytes(device.memory).c_str());
  if (!note.empty()) std::printf("%s\n", note.c_str());
  return Unit{};
}

}  // namespace

void add_devices_command(CLI::App& app, Result<Unit>* outcome) {
  auto* command = app.add_subcommand("devices", "The devices of this machine");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "As a fleet (core/FORMATS.md)");
  command->callback([=] { *outcome = run_devices(*as_json); });
}

}  // namespace motley
