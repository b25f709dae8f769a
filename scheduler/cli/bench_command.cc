#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <thread>

#include "core/spec/fleet_spec.h"
#include "scheduler/cli/command.h"
#include "scheduler/launch/child_process.h"
#include "scheduler/launch/environment.h"
#include "scheduler/launch/run_ranks.h"
#include "scheduler/launch/this_host.h"
#include "scheduler/launch/worker_program.h"
#include "scheduler/run/measure.h"

namespace motley {
namespace {

constexpr Nanos kBenchLimit{int64_t{600} * 1'000'000'000};
constexpr int64_t kMostRanks = 1024;

/// `motley bench link` and `motley bench comm`: what the worker measures, in its own words.
class BenchCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("WHAT",
                    "link: copies between this machine's memory and each of its devices; comm: "
                    "sums over ranks, on this machine or on a fleet",
                    &what_)
        .completes({"link", "comm"})
        .option("--size", "SIZE", "link: of each large copy, 1MB to 16GiB; default 256MB", &size_)
        .option("--sizes", "SIZES", "comm: of each sum, as 1MiB,64MiB; default 1KiB to 64MiB",
                &sizes_)
        .option("--compress", "CODEC",
                "comm: what crosses links between hosts: fp16, bf16, int8, sign, top_k", &codec_)
        .option("--ranks", "N", "comm: so many on this machine; default: one for each core",
                &ranks_)
        .option("--fleet", "FILE", "comm: a rank for each device of it, on its host", &fleet_)
        .option("--rsh-agent", "PROGRAM", "comm: used instead of ssh to reach other hosts",
                &rsh_agent_)
        .flag("--json", "one object, as core/FORMATS.md has it", &json_);
  }

  Result<int> run() override {
    if (what_ == "link") return bench_link();
    if (what_ == "comm") return bench_comm();
    return fail(ErrorCode::kUsage, "there is no bench '" + what_ + "', but link and comm");
  }

 private:
  /// Its progress goes to stderr.
  Result<int> bench_link() {
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

  Result<int> bench_comm() {
    MOTLEY_TRY(const std::vector<RankPlacement> ranks, ranks_to_sum());
    std::vector<std::string> arguments = {"bench-comm"};
    if (!sizes_.empty()) arguments.push_back("--sizes=" + sizes_);
    if (!codec_.empty()) arguments.push_back("--compress=" + codec_);
    if (json_) arguments.emplace_back("--json");
    std::fprintf(stderr, "summing over %zu ranks, about a second for each size\n", ranks.size());
    MOTLEY_TRY(const std::string said, run_ranks(ranks, arguments, rsh_agent_, kBenchLimit));
    std::fputs(said.c_str(), stdout);
    return 0;
  }

  Result<std::vector<RankPlacement>> ranks_to_sum() const {
    std::vector<RankPlacement> ranks;
    if (!fleet_.empty()) {
      if (ranks_) return fail(ErrorCode::kUsage, "--ranks and --fleet exclude each other");
      JobSpec job;
      MOTLEY_TRY(const FleetSpec fleet, resolve_fleet(fleet_, job));
      for (const DeviceSpec& device : fleet.devices)
        ranks.push_back({device.id, device.host, device.type});
    } else {
      const int cores = static_cast<int>(std::thread::hardware_concurrency());
      const int64_t count = ranks_.value_or(std::clamp(cores, 2, 8));
      for (int64_t rank = 0; rank < std::min(count, kMostRanks + 1); ++rank)
        ranks.push_back({std::to_string(rank), own_host_name(), ""});
    }
    if (ranks.size() < 2 || std::ssize(ranks) > kMostRanks)
      return fail(ErrorCode::kUsage, "sums are over 2 to " + std::to_string(kMostRanks) + " ranks");
    return ranks;
  }

  std::string what_, size_ = "256MB", sizes_, codec_, fleet_, rsh_agent_;
  std::optional<int64_t> ranks_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_bench_command() { return std::make_unique<BenchCommand>(); }

}  // namespace motley
