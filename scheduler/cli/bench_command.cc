#include "scheduler/cli/command.h"
#include "scheduler/launch/child_process.h"
#include "scheduler/launch/environment.h"
#include "scheduler/launch/worker_program.h"

namespace motley {
namespace {

constexpr Nanos kBenchLimit{int64_t{600} * 1'000'000'000};

/// `motley bench link`: what the worker measures here, in its own words; its progress goes to
/// stderr.
class BenchCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("WHAT", "link: copies between this machine's memory and each of its devices",
                    &what_)
        .completes({"link"})
        .option("--size", "SIZE", "of each large copy, 1MB to 16GiB; default 256MB", &size_)
        .flag("--json", "one object: bytes per second, latency and PCIe link of each device",
              &json_);
  }

  Result<int> run() override {
    if (what_ != "link")
      return fail(ErrorCode::kUsage, "there is no bench '" + what_ + "', but link");
    SpawnRequest spawn;
    MOTLEY_TRY(const std::string worker, worker_program());
    spawn.command = {worker, "bench-link", "--size=" + size_};
    if (json_) spawn.command.push_back("--json");
    spawn.environment = Environment::inherited().entries();
    spawn.die_with_parent = true;
    MOTLEY_TRY(ChildProcess child, ChildProcess::spawn(spawn));
    ExitStatus status;
    if (!child.wait(kBenchLimit, &status))
      return fail(ErrorCode::kNoDevice, "copying takes too long; see motley doctor");
    return status.status;
  }

 private:
  std::string what_, size_ = "256MB";
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_bench_command() { return std::make_unique<BenchCommand>(); }

}  // namespace motley
