#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "comm/mpi_module.h"
#include "core/file_system.h"
#include "core/hash.h"
#include "core/module.h"
#include "core/version.h"
#include "kernels/device.h"
#include "worker/commands/commands.h"
#include "worker/train/world.h"

namespace motley {
namespace {

/// "2 found", or why there is none.
std::string gpus() {
  std::string note;
  int found = 0;
  for (const FoundDevice& device : discover_devices(&note))
    found += device.kind == DeviceKind::kCuda && device.unfit.empty() ? 1 : 0;
  return found > 0 ? std::to_string(found) + " found" : "none: " + note;
}

constexpr Bytes kLargestModule{int64_t{4} << 30};

/// Of a file's content; empty where it cannot be read.
std::string hash_of(const std::string& path) {
  const auto content = read_text(real_file_system(), path, kLargestModule);
  return content ? xxh3_64_hex(content->data(), content->size()) : "";
}

std::string cpu_arithmetic() {
  DeviceSpec cpu;
  cpu.kind = DeviceKind::kCpu;
  const auto device = open_device(cpu);
  return device ? (*device)->arithmetic_class() : device.error().message;
}

/// Of the NVIDIA driver that is loaded; empty where none is.
std::string driver_version() {
  std::ifstream file("/sys/module/nvidia/version");
  std::string version;
  std::getline(file, version);
  return version;
}

/// All that measurements depend on besides job and device: when any of it changes, the profile
/// cache measures again.
nlohmann::json installation() {
  nlohmann::json gpus = nlohmann::json::array();
  std::string note;
  for (const FoundDevice& device : discover_devices(&note))
    if (device.kind == DeviceKind::kCuda) gpus.push_back(device.name + " " + device.uuid);
  const auto mpi = mpi_library();
  return {{"motley-worker", hash_of("/proc/self/exe")},
          {"motley_mpi", hash_of(module_path("motley_mpi").string())},
          {"motley_cuda", hash_of(module_path("motley_cuda").string())},
          {"mpi", mpi ? *mpi : mpi.error().message},
          {"arithmetic", cpu_arithmetic()},
          {"driver", driver_version()},
          {"gpus", gpus}};
}

Result<Unit> run_version(bool as_json) {
  const BuildVersion& build = build_version();
  // Opening the world is the point under mpirun: `motley doctor` learns whether MPI starts here.
  MOTLEY_TRY(const auto world, open_world());
  MOTLEY_TRY_VOID(world->barrier());
  if (world->rank() != 0) return Unit{};
  if (!as_json) {
    std::printf("motley-worker %s (%s), %s\n", std::string(build.version).c_str(),
                std::string(build.git).c_str(), std::string(build.compiler).c_str());
    if (!build.cuda.empty())
      std::printf("CUDA %s, code %s\n", std::string(build.cuda).c_str(),
                  std::string(build.cuda_architectures).c_str());
    return Unit{};
  }
  nlohmann::json version = to_json(build);
  version["gpus"] = gpus();
  version["installation"] = installation();
  version["communicator"] = world->description();
  version["ranks"] = std::to_string(world->size());
  std::printf("%s\n", version.dump().c_str());
  return Unit{};
}

}  // namespace

void add_version_command(CLI::App& app, Result<Unit>* outcome) {
  auto* command = app.add_subcommand("version", "What this program was built from");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "One JSON object");
  command->callback([=] { *outcome = run_version(*as_json); });
}

}  // namespace motley
