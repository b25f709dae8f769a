#include "scheduler/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "core/units.h"

namespace motley {
namespace {

/// "-o,--output" with its placeholder as CLI11 prints it.
CLI::Option* named(CLI::Option* option, const std::string& placeholder) {
  return option->type_name(placeholder);
}

std::string long_name(const CLI::Option* option) { return "--" + option->get_lnames().at(0); }

}  // namespace

CommandLine::CommandLine() : app_(std::make_unique<CLI::App>()) {}
CommandLine::~CommandLine() = default;

CommandLine& CommandLine::positional(const std::string& name, const std::string& help,
                                     std::string* value) {
  named(app_->add_option(name, *value, help), "")->required();
  last_option_.clear();
  ++words_;
  return *this;
}

CommandLine& CommandLine::optional_word(const std::string& name, const std::string& help,
                                        std::string* value) {
  named(app_->add_option(name, *value, help), "");
  last_option_.clear();
  ++words_;
  return *this;
}

CommandLine& CommandLine::words(const std::string& name, const std::string& help,
                                std::vector<std::string>* values) {
  named(app_->add_option(name, *values, help), "")->required();
  last_option_.clear();
  ++words_;
  return *this;
}

CommandLine& CommandLine::behind_dashes(const std::string& help, std::vector<std::string>* values) {
  behind_dashes_ = values;
  app_->footer("Behind --: " + help);
  return *this;
}

CommandLine& CommandLine::option(const std::string& names, const std::string& placeholder,
                                 const std::string& help, std::string* value) {
  last_option_ = long_name(named(app_->add_option(names, *value, help), placeholder));
  return *this;
}

CommandLine& CommandLine::option(const std::string& names, const std::string& placeholder,
                                 const std::string& help, std::optional<int64_t>* value) {
  const auto assign = [value](const int64_t& number) { *value = number; };
  CLI::Option* option = named(app_->add_option_function<int64_t>(names, assign, help), placeholder);
  last_option_ = long_name(option);
  option->check([](const std::string& text) {
    const bool digits = text.find_first_not_of("0123456789") == std::string::npos;
    return digits ? std::string() : "takes a whole number, not '" + text + "'";
  });
  return *this;
}

CommandLine& CommandLine::option(const std::string& names, const std::string& placeholder,
                                 const std::string& help, std::vector<std::string>* values) {
  // One value each time, and the help says so: for lists CLI11 would write "KEY=VALUE ...".
  CLI::Option* option =
      named(app_->add_option(names, *values, help + " (may be repeated)"), placeholder);
  last_option_ = long_name(option->expected(1)->take_all()->allow_extra_args(false));
  return *this;
}

CommandLine& CommandLine::completes(std::vector<std::string> values) {
  completions_.push_back({last_option_, last_option_.empty() ? words_ : 0, std::move(values)});
  return *this;
}

CommandLine& CommandLine::completes_runs() { return completes({}); }

CommandLine& CommandLine::flag(const std::string& names, const std::string& help, bool* value) {
  app_->add_flag(names, *value, help);
  return *this;
}

std::vector<std::string> CommandLine::option_names() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

Result<Unit> CommandLine::explain_extras() const {
  const std::string extra = app_->remaining().front();
  if (extra.front() != '-') return fail(ErrorCode::kUsage, "unexpected argument '" + extra + "'");
  const std::string name = extra.substr(0, extra.find('='));
  const std::vector<std::string> known = option_names();
  const std::vector<std::string_view> choices(known.begin(), known.end());
  const std::string near = did_you_mean(name, choices.data(), choices.size());
  return fail(ErrorCode::kUsage, "unknown option '" + name + "'" +
                                     (near.empty() ? "" : " (did you mean '" + near + "'?)"));
}

Result<Unit> CommandLine::parse(const std::vector<std::string>& arguments) const {
  try {
    auto end = arguments.end();
    if (behind_dashes_ != nullptr) {
      end = std::find(arguments.begin(), arguments.end(), "--");
      if (end != arguments.end()) behind_dashes_->assign(end + 1, arguments.end());
    }
    std::vector<std::string> ours(arguments.begin(), end);
    std::reverse(ours.begin(), ours.end());  // CLI11's order
    app_->parse(std::move(ours));
    return Unit{};
  } catch (const CLI::ExtrasError&) {
    return explain_extras();
  } catch (const CLI::ParseError& error) {
    // A missing word is often a mistyped option that was taken for an extra.
    if (!app_->remaining().empty()) return explain_extras();
    return fail(ErrorCode::kUsage, error.what());
  }
}

bool CommandLine::help_wanted(const std::vector<std::string>& arguments) const {
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  return std::any_of(arguments.begin(), end, [](const std::string& argument) {
    return argument == "-h" || argument == "--help";
  });
}

std::string CommandLine::help(const std::string& command, const std::string& summary) const {
  app_->name("motley " + command);
  app_->description(summary);
  return app_->help();
}

}  // namespace motley
