#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "comm/launch_env.h"
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
    found += device.kind == DeviceKind::kCuda ? 1 : 0;
  return found > 0 ? std::to_string(found) + " found" : "none: " + note;
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
    return Unit{};
  }
  const nlohmann::json version = {{"version", build.version},
                                  {"git", build.git},
                                  {"compiler", build.compiler},
                                  {"build_type", build.build_type},
                                  {"cpu_isa", build.cpu_isa},
                                  {"cuda", build.cuda},
                                  {"cuda_architectures", build.cuda_architectures},
                                  {"nccl", build.nccl},
                                  {"mpi", build.mpi},
                                  {"gpus", gpus()},
                                  {"communicator", world->description()},
                                  {"ranks", std::to_string(world->size())}};
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
