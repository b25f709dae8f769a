#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/spec/catalog_reader.h"
#include "core/spec/json.h"
#include "core/spec/reader.h"
#include "scheduler/cli/command.h"
#include "scheduler/cli/output_file.h"
#include "scheduler/launch/this_host.h"
#include "scheduler/run/find_fleet.h"

namespace motley {
namespace {

/// `motley fleet init`: a fleet file to start from.
class FleetCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("WHAT", "init: write a fleet file of what is there", &what_)
        .completes({"init"})
        .option("--hosts", "A,B:SLOTS", "ask these hosts, instead of this machine", &hosts_)
        .option("--slurm", "PARTITION", "what Slurm says of its nodes; nothing is measured",
                &partition_)
        .option("--rsh-agent", "PROGRAM", "used instead of ssh to reach other hosts", &rsh_agent_)
        .option("-o,--output", "FILE", "write there instead of stdout", &output_)
        .flag("--json", "the fleet as JSON", &json_);
  }

  Result<int> run() override {
    if (what_ != "init")
      return fail(ErrorCode::kUsage, "unknown word '" + what_ + "': `motley fleet init`");
    if (!hosts_.empty() && !partition_.empty())
      return fail(ErrorCode::kUsage, "--hosts asks hosts, --slurm asks Slurm: give one of them");
    MOTLEY_TRY(const std::vector<FoundHost> hosts, found());
    std::string text = fleet_yaml(hosts);
    // What we write we can read, whatever names Slurm or a host has.
    MOTLEY_TRY(const FleetSpec fleet, parse_fleet(text, "what was found"));
    if (json_) text = to_json(fleet).dump(1) + "\n";
    if (output_.empty())
      std::fputs(text.c_str(), stdout);
    else
      MOTLEY_TRY_VOID(write_output_file(output_, text));
    std::fprintf(stderr, "devices: %zu, on hosts: %zu\n", fleet.devices.size(), hosts.size());
    return 0;
  }

 private:
  Result<std::vector<FoundHost>> found() const {
    if (!partition_.empty()) {
      MOTLEY_TRY(const auto nodes, slurm_nodes(partition_));
      MOTLEY_TRY(const DeviceCatalog catalog, built_in_catalog());
      return hosts_of_slurm(nodes, catalog);
    }
    if (hosts_.empty()) return ask_hosts({{own_host_name(), 0}}, rsh_agent_);
    MOTLEY_TRY(const auto asked, parse_hosts(hosts_));
    return ask_hosts(asked, rsh_agent_);
  }

  std::string what_, hosts_, partition_, rsh_agent_, output_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_fleet_command() { return std::make_unique<FleetCommand>(); }

}  // namespace motley
