#include <unistd.h>

#include <cstdio>

#include "scheduler/cli/command.h"
#include "scheduler/launch/child_process.h"
#include "scheduler/launch/environment.h"
#include "scheduler/launch/worker_program.h"

namespace motley {
namespace {

/// `motley devices`: what the worker sees here, in its own words.
class DevicesCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.flag("--json", "one object: the devices, and this machine as a fleet", &json_);
  }

  Result<int> run() override {
    SpawnRequest spawn;
    MOTLEY_TRY(const std::string worker, worker_program());
    spawn.command = {worker, "devices"};
    if (json_) spawn.command.push_back("--json");
    spawn.environment = Environment::inherited().entries();
    MOTLEY_TRY(ChildProcess child, ChildProcess::spawn(spawn));
    ExitStatus status;
    if (!child.wait(nanos_of_seconds(60), &status))
      return fail(ErrorCode::kNoDevice, "listing the devices takes too long; see motley doctor");
    return status.status;
  }

 private:
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_devices_command() { return std::make_unique<DevicesCommand>(); }

}  // namespace motley
