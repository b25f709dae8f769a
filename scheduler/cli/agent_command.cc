// agent: on each machine of the service; rsh: what its attempts use instead of ssh.

#include <map>
#include <set>
#include <string>

#include "core/nvml.h"
#include "core/spec/reader.h"
#include "core/version.h"
#include "scheduler/agent/agent.h"
#include "scheduler/agent/remote_shell.h"
#include "scheduler/cli/service_command.h"
#include "scheduler/launch/this_host.h"
#include "scheduler/run/measure.h"
#include "scheduler/service/certificates.h"
#include "scheduler/service/node_json.h"

namespace motley {
namespace {

/// What else people want to know of a machine, as labels that nobody has set otherwise.
void describe_machine(std::map<std::string, std::string>* labels) {
  const BuildVersion& build = build_version();
  labels->try_emplace("motley.version", std::string(build.version) + " " + std::string(build.git));
  const auto nvml = Nvml::open();
  if (!nvml) return;
  labels->try_emplace("motley.driver", (*nvml)->driver_version());
  std::set<std::string> capabilities;
  for (const GpuStatus& gpu : (*nvml)->gpus())
    if (gpu.compute_capability)
      capabilities.insert("sm_" + std::to_string(*gpu.compute_capability));
  std::string text;
  for (const std::string& capability : capabilities) text += (text.empty() ? "" : " ") + capability;
  if (!text.empty()) labels->try_emplace("motley.capability", text);
}

class AgentCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.option("--join", "ADDRESS", "of the coordinator: HOST:PORT, or the path of its socket",
                &join_)
        .option("--token-file", "FILE", "with HOST:PORT: a token of the role node", &token_)
        .option("--fingerprint", "SHA256", "with it: of the coordinator's authority", &fingerprint_)
        .option("--name", "NAME", "of this node, as other hosts know it, instead of its host name",
                &options_.name)
        .option("--fleet", "FILE", "devices of the host NAME there, instead of this machine's",
                &fleet_)
        .option("--label", "NAME=VALUE", "shown by motley nodes; may be repeated", &labels_);
  }

  Result<int> run() override {
    if (join_.empty())
      return fail(ErrorCode::kUsage, "agent needs --join ADDRESS, the coordinator's");
    if (options_.name.empty()) options_.name = own_host_name();
    if (!is_node_name(options_.name))
      return fail(ErrorCode::kUsage,
                  "--name: up to 64 letters, digits, '.', '-', '_', not '" + options_.name + "'");
    MOTLEY_TRY_VOID(read_labels());
    describe_machine(&options_.labels);
    Result<FleetSpec> fleet = fleet_.empty() ? local_fleet() : read_fleet(fleet_);
    if (!fleet) return fail(fleet.error());
    MOTLEY_TRY(options_.fleet, fleet_of_node(std::move(*fleet), options_.name, fleet_.empty()));
    options_.address = join_;
    MOTLEY_TRY(ServiceAddress coordinator, coordinator_address());
    return run_agent(ServiceClient(std::move(coordinator)), std::move(options_));
  }

 private:
  Result<ServiceAddress> coordinator_address() const {
    const bool over_network = join_.find('/') == std::string::npos;
    if (over_network == (token_.empty() || fingerprint_.empty()))
      return fail(ErrorCode::kUsage,
                  "--join HOST:PORT goes with --token-file and --fingerprint, as `motley token "
                  "create --role node` says them; the path of a socket (with a '/') with neither");
    if (!over_network) return ServiceAddress{join_, {}};
    Login login;
    MOTLEY_TRY(login.at, parse_endpoint(join_));
    MOTLEY_TRY(const std::string fingerprint, parse_fingerprint(fingerprint_));
    MOTLEY_TRY(login.authority, fetch_authority(login.at, fingerprint));
    MOTLEY_TRY(login.token, read_token_file(token_));
    return ServiceAddress{"", std::move(login)};
  }

  Result<Unit> read_labels() {
    for (const std::string& label : labels_) {
      const size_t equals = label.find('=');
      if (equals == std::string::npos || !is_node_name(label.substr(0, equals)))
        return fail(ErrorCode::kUsage, "--label: expected NAME=VALUE, found '" + label + "'");
      options_.labels[label.substr(0, equals)] = label.substr(equals + 1);
    }
    return Unit{};
  }

  AgentOptions options_;
  std::string join_, fleet_, token_, fingerprint_;
  std::vector<std::string> labels_;
};

/// Its words stand behind "--": some look like options.
class RshCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("HOST", "a node", &host_).words("COMMAND", "for its shell", &words_);
  }
  Result<int> run() override {
    std::string command;
    for (const std::string& word : words_) command += (command.empty() ? "" : " ") + word;
    return run_on_node(host_, command);
  }

 private:
  std::string host_;
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> make_agent_command() { return std::make_unique<AgentCommand>(); }
std::unique_ptr<Command> make_rsh_command() { return std::make_unique<RshCommand>(); }

}  // namespace motley
