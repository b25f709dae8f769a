#pragma once
// What a command accepts, declared before it is parsed; the values arrive in the variables named
// here. Options may stand anywhere, as "--name value" or "--name=value"; "--" ends them. CLI11
// underneath, kept out of this header.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"

namespace CLI {
class App;
}

namespace motley {

class CommandLine {
 public:
  CommandLine();
  ~CommandLine();

  /// A word that must be given, e.g. ("JOB", "job file", &path).
  CommandLine& positional(const std::string& name, const std::string& help, std::string* value);
  /// A word that may be left out.
  CommandLine& optional_word(const std::string& name, const std::string& help, std::string* value);
  /// All words that follow, one at least.
  CommandLine& words(const std::string& name, const std::string& help,
                     std::vector<std::string>* values);
  /// All arguments behind "--", which are no words or options then.
  CommandLine& behind_dashes(const std::string& help, std::vector<std::string>* values);
  /// `names`: "--fleet" or "-o,--output"; `placeholder` names the value in the help.
  CommandLine& option(const std::string& names, const std::string& placeholder,
                      const std::string& help, std::string* value);
  CommandLine& option(const std::string& names, const std::string& placeholder,
                      const std::string& help, std::optional<int64_t>* value);
  /// May be given several times.
  CommandLine& option(const std::string& names, const std::string& placeholder,
                      const std::string& help, std::vector<std::string>* values);
  /// What the word or option declared last may be, for completion.
  CommandLine& completes(std::vector<std::string> values);
  CommandLine& completes_runs();  ///< the names of runs
  CommandLine& flag(const std::string& names, const std::string& help, bool* value);

  /// kUsage for an unknown option (with the nearest known one), a missing or a superfluous word.
  Result<Unit> parse(const std::vector<std::string>& arguments) const;
  bool help_wanted(const std::vector<std::string>& arguments) const;  ///< -h or --help

  /// "usage: motley plan JOB [options]" and a line for each word and option.
  std::string help(const std::string& command, const std::string& summary) const;
  /// All long options, for completion.
  std::vector<std::string> option_names() const;

  /// What may stand at a place of the command line.
  struct Completion {
    std::string option;               ///< "--clock"; empty: a word
    int position = 0;                 ///< of the word, from 1
    std::vector<std::string> values;  ///< empty: names of runs
  };
  const std::vector<Completion>& completions() const { return completions_; }

 private:
  Result<Unit> explain_extras() const;

  std::unique_ptr<CLI::App> app_;
  std::vector<std::string>* behind_dashes_ = nullptr;
  std::vector<Completion> completions_;
  std::string last_option_;  ///< declared last; empty: a word
  int words_ = 0;
};

}  // namespace motley
