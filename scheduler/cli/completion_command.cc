#include <cstdio>

#include "scheduler/cli/command.h"

namespace motley {
namespace {

std::string names_of_commands() {
  std::string names;
  for (const CommandEntry& entry : commands())
    if (!entry.summary.empty()) names += (names.empty() ? "" : " ") + std::string(entry.name);
  return names;
}

std::string options_of(const CommandEntry& entry) {
  CommandLine line;
  const auto command = entry.make();
  command->declare(line);
  std::string names;
  for (const std::string& name : line.option_names()) names += (names.empty() ? "" : " ") + name;
  return names;
}

std::string bash_script() {
  std::string text =
      "_motley() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} words=\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    COMPREPLY=($(compgen -W '" +
      names_of_commands() +
      " --help --version' -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case ${COMP_WORDS[1]} in\n";
  for (const CommandEntry& entry : commands())
    if (!entry.summary.empty())
      text += "    " + std::string(entry.name) + ") words='" + options_of(entry) + "' ;;\n";
  return text +
         "  esac\n"
         "  [[ $current == -* ]] && COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "}\n"
         "complete -o default -F _motley motley\n";
}

std::string fish_script() {
  std::string text;
  for (const CommandEntry& entry : commands())
    if (!entry.summary.empty())
      text += "complete -c motley -n __fish_use_subcommand -a " + std::string(entry.name) +
              " -d \"" + std::string(entry.summary) + "\"\n";
  return text;
}

/// `motley completion SHELL`: a script for that shell to read.
class CompletionCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("SHELL", "bash, zsh or fish", &shell_);
  }

  Result<int> run() override {
    if (shell_ == "bash")
      std::fputs(bash_script().c_str(), stdout);
    else if (shell_ == "zsh")
      std::fputs(("autoload -U +X bashcompinit && bashcompinit\n" + bash_script()).c_str(), stdout);
    else if (shell_ == "fish")
      std::fputs(fish_script().c_str(), stdout);
    else
      return fail(ErrorCode::kUsage, "no completion for '" + shell_ + "': bash, zsh or fish");
    return 0;
  }

 private:
  std::string shell_;
};

}  // namespace

std::unique_ptr<Command> make_completion_command() { return std::make_unique<CompletionCommand>(); }

}  // namespace motley
