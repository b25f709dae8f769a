// `motley`: finds the command, gives it its words, prints its error.

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/debug_env.h"
#include "core/log.h"
#include "core/output.h"
#include "core/units.h"
#include "core/version.h"
#include "scheduler/cli/command.h"

namespace motley {
namespace {

std::string general_help() {
  std::string text =
      "usage: motley COMMAND [options]\n\nTrains one model on a mixed fleet of devices.\n\n";
  for (const CommandEntry& entry : commands()) {
    if (entry.summary.empty()) continue;
    std::string name(entry.name);
    name.resize(std::max<size_t>(name.size(), 12), ' ');
    text += "  " + name + std::string(entry.summary) + "\n";
  }
  return text +
         "\n  --version     what this is built from\n"
         "  --print-config  directories and debugging variables, and where each comes from\n"
         "\nmotley COMMAND --help says more.\n"
         "\nIt exits with 0 when all went well, 1 where a run or a device failed, 2 for a wrong\n"
         "command line, 65 for a wrong file or where there is no plan, 66 for a file that is not\n"
         "there, 69 for a device, host or service that is not, 70 for a fault of ours, 75 when it\n"
         "was stopped with a checkpoint, 77 for what is not permitted, 78 for a broken\n"
         "installation, 128 and the signal's number when one ended it.\n";
}

std::string version_text() {
  const BuildVersion& build = build_version();
  const auto or_none = [](std::string_view text) {
    return text.empty() ? std::string("none") : std::string(text);
  };
  return "motley " + std::string(build.version) + " (" + std::string(build.git) + ", " +
         std::string(build.compiler) + ", " + std::string(build.build_type) + ")\n" + "CUDA " +
         or_none(build.cuda) + ", architectures " + or_none(build.cuda_architectures) + ", NCCL " +
         or_none(build.nccl) + ", MPI " + or_none(build.mpi) + ", CPU " + or_none(build.cpu_isa) +
         "\n";
}

/// `--version`, alone or with --json.
Result<std::string> version_for(const std::vector<std::string>& options) {
  if (options.empty()) return version_text();
  if (options.size() == 1 && options.front() == "--json")
    return to_json(build_version()).dump() + "\n";
  return fail(ErrorCode::kUsage, "--version takes --json, not '" + options.front() + "'");
}

std::string config_text() {
  std::string text = "state_directory = " + state_directory() +
                     "\ncache_directory = " + cache_directory() +
                     "\nconfig_directory = " + config_directory() + "\n";
  for (const EnvSetting& setting : debug_env_settings())
    text += setting.name + " = '" + setting.value + "' (" + setting.origin + ")\n";
  return text;
}

Result<const CommandEntry*> find_command(const std::string& name) {
  std::vector<std::string_view> names;
  for (const CommandEntry& entry : commands()) {
    if (entry.name == name) return &entry;
    if (!entry.summary.empty()) names.push_back(entry.name);
  }
  const std::string near = did_you_mean(name, names.data(), names.size());
  return fail(ErrorCode::kUsage,
              "unknown command '" + name + "'" +
                  (near.empty() ? "; motley --help lists all" : " (did you mean '" + near + "'?)"));
}

Result<int> run_command(const std::string& name, const std::vector<std::string>& arguments) {
  MOTLEY_TRY(const CommandEntry* entry, find_command(name));
  const auto command = entry->make();
  CommandLine line;
  command->declare(line);
  if (line.help_wanted(arguments)) {
    std::cout << line.help(name, std::string(entry->summary));
    return 0;
  }
  MOTLEY_TRY_VOID(line.parse(arguments));
  return command->run();
}

Result<int> dispatch(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::cerr << general_help();
    return exit_code(ErrorCode::kUsage);
  }
  const std::string& first = arguments.front();
  if (first == "-h" || first == "--help" || first == "help")
    std::cout << general_help();
  else if (first == "--version") {
    MOTLEY_TRY(const std::string text, version_for({arguments.begin() + 1, arguments.end()}));
    std::cout << text;
  } else if (first == "--print-config")
    std::cout << config_text();
  else if (first[0] == '-')
    return fail(ErrorCode::kUsage, "unknown option '" + first + "'; motley --help lists all");
  else
    return run_command(first, {arguments.begin() + 1, arguments.end()});
  return 0;
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  using namespace motley;
  configure_log("motley");
  Result<int> status = without_exceptions([&] { return dispatch({argv + 1, argv + argc}); });
  const Result<Unit> written = flush_output();
  if (status && !written) status = fail(written.error());
  if (status) return *status;
  std::cerr << "motley: " << status.error().to_string() << "\n";
  return exit_code(status.error().code);
}
