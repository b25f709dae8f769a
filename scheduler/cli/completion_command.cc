#include <cstdio>

#include "scheduler/cli/command.h"

namespace motley {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string names_of_commands() {
  std::vector<std::string> names;
  for (const CommandEntry& entry : commands())
    if (!entry.summary.empty()) names.emplace_back(entry.name);
  return joined(names);
}

/// Names of runs, in the words of any POSIX shell.
constexpr const char* kRuns =
    "$(ls \"${XDG_STATE_HOME:-$HOME/.local/state}/motley/runs\" 2>/dev/null)";

std::string bash_values(const CommandLine::Completion& completion) {
  return completion.values.empty() ? "\"" + std::string(kRuns) + "\""
                                   : "'" + joined(completion.values) + "'";
}

/// What bash shall offer after this command: options, values of options, words.
std::string bash_case(const CommandEntry& entry) {
  CommandLine line;
  const auto command = entry.make();
  command->declare(line);
  std::string text = "    " + std::string(entry.name) + ")\n";
  text += "      words='" + joined(line.option_names()) + "'\n";
  for (const CommandLine::Completion& completion : line.completions()) {
    const std::string when = completion.option.empty()
                                 ? "$COMP_CWORD == " + std::to_string(completion.position + 1)
                                 : "$before == " + completion.option;
    text += "      [[ " + when + " ]] && values=" + bash_values(completion) + " ;\n";
  }
  return text + "      ;;\n";
}

std::string bash_script() {
  std::string text =
      "_motley() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  local words= values=\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    COMPREPLY=($(compgen -W '" +
      names_of_commands() +
      " --help --version' -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case ${COMP_WORDS[1]} in\n";
  for (const CommandEntry& entry : commands())
    if (!entry.summary.empty()) text += bash_case(entry);
  return text +
         "  esac\n"
         "  [[ $current == -* ]] || words=$values\n"
         "  [[ -n $words ]] && COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "}\n"
         "complete -o default -F _motley motley\n";
}

/// fish knows no positions of words, so the values of all of a command's words are offered.
std::string fish_values(const CommandEntry& entry) {
  CommandLine line;
  const auto command = entry.make();
  command->declare(line);
  std::string text;
  for (const CommandLine::Completion& completion : line.completions()) {
    const std::string option =
        completion.option.empty() ? "" : " -x -l " + completion.option.substr(2);
    const std::string values =
        completion.values.empty() ? "(ls (set -q XDG_STATE_HOME; and echo $XDG_STATE_HOME; or echo "
                                    "~/.local/state)/motley/runs 2>/dev/null)"
                                  : joined(completion.values);
    text += "complete -c motley -n '__fish_seen_subcommand_from " + std::string(entry.name) + "'" +
            option + " -a '" + values + "'\n";
  }
  return text;
}

std::string fish_script() {
  std::string text;
  for (const CommandEntry& entry : commands())
    if (!entry.summary.empty())
      text += "complete -c motley -n __fish_use_subcommand -a " + std::string(entry.name) +
              " -d \"" + std::string(entry.summary) + "\"\n" + fish_values(entry);
  return text;
}

/// `motley completion SHELL`: a script for that shell to read.
class CompletionCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("SHELL", "bash, zsh or fish", &shell_).completes({"bash", "zsh", "fish"});
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
