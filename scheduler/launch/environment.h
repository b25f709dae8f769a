#pragma once
// The environment of a process to be started: what this one was given, plus what we set. A variable
// of the user's is never overridden.

#include <string>
#include <vector>

namespace motley {

class Environment {
 public:
  static Environment inherited();
  /// Of "NAME=value" each.
  static Environment of(std::vector<std::string> entries);

  /// Empty when unset.
  std::string value(const std::string& name) const;
  bool has(const std::string& name) const;
  void set(const std::string& name, const std::string& value);
  void unset(const std::string& name);
  void set_default(const std::string& name, const std::string& value) {
    if (!has(name)) set(name, value);
  }
  /// "NAME=value" each.
  const std::vector<std::string>& entries() const { return entries_; }

 private:
  std::vector<std::string> entries_;
};

/// What of ours every rank is given, also on other hosts, as "NAME=value": our own variables
/// (MOTLEY_...), and that devices are numbered as we number them unless the user wants otherwise.
std::vector<std::string> environment_for_ranks(Environment ours);

/// Where the shell would find `program` with that PATH (ours); empty when nowhere. A name with a
/// slash is looked at as it is.
std::string find_program(const std::string& program);
std::string find_program(const std::string& program, const std::string& path);

}  // namespace motley
