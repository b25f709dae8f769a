#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "core/version.h"
#include "worker/bridge/script_checkpoint.h"
#include "worker/commands/commands.h"

namespace motley {
namespace {

struct CommitOptions {
  std::string directory;
  Manifest base;
  int keep = 3;
};

void tell(const std::string& line) { std::fprintf(stderr, "motley: %s\n", one_line(line).c_str()); }

Result<Unit> run_commit(CommitOptions options) {
  options.base.code_version = std::string(build_version().version);
  MOTLEY_TRY(const std::string path, commit_script(real_file_system(), options.directory,
                                                   options.base, options.keep, tell));
  std::printf("%s\n", path.c_str());
  return Unit{};
}

Result<Unit> run_newest(const std::string& directory) {
  MOTLEY_TRY(const std::string path, newest_whole(real_file_system(), directory, tell));
  if (!path.empty()) std::printf("%s\n", path.c_str());
  return Unit{};
}

void add_commit(CLI::App& app, Result<Unit>* outcome) {
  auto* command =
      app.add_subcommand("commit", "Gives a checkpoint its manifest and its name, prints its path");
  auto options = std::make_shared<CommitOptions>();
  command
      ->add_option("DIRECTORY", options->directory,
                   ".tmp-step-N.eATTEMPT, with a durable s0000.safetensors in it")
      ->required();
  Manifest& base = options->base;
  command->add_option("--job", base.job, "Its name")->required();
  command->add_option("--seed", base.seed, "Of the order of the data")->required();
  command->add_option("--next-sample", base.next_sample, "How many have been trained on")
      ->check(CLI::NonNegativeNumber)
      ->required();
  command->add_option("--arithmetic", base.arithmetic_class, "What has computed it");
  command->add_option("--keep", options->keep, "How many checkpoints stay (default: 3)")
      ->check(CLI::PositiveNumber);
  command->callback([=] { *outcome = run_commit(*options); });
}

}  // namespace

void add_script_checkpoint_command(CLI::App& app, Result<Unit>* outcome) {
  auto* command =
      app.add_subcommand("script-checkpoint", "Checkpoints of a script, for motley_torch.py");
  command->require_subcommand(1);
  add_commit(*command, outcome);
  auto* newest = command->add_subcommand(
      "newest", "Prints the path of the newest one that is whole; damaged ones are set aside");
  auto directory = std::make_shared<std::string>();
  newest->add_option("DIRECTORY", *directory, "With the checkpoints of a run")->required();
  newest->callback([=] { *outcome = run_newest(*directory); });
}

}  // namespace motley
