#include "scheduler/launch/environment.h"

#include <unistd.h>

#include <algorithm>
#include <sstream>

namespace motley {
namespace {

bool names(const std::string& entry, const std::string& name) {
  return entry.size() > name.size() && entry[name.size()] == '=' &&
         entry.compare(0, name.size(), name) == 0;
}

}  // namespace

Environment Environment::inherited() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    environment.entries_.emplace_back(*entry);
  return environment;
}

Environment Environment::of(std::vector<std::string> entries) {
  Environment environment;
  environment.entries_ = std::move(entries);
  return environment;
}

std::string Environment::value(const std::string& name) const {
  for (const std::string& entry : entries_)
    if (names(entry, name)) return entry.substr(name.size() + 1);
  return "";
}

bool Environment::has(const std::string& name) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const std::string& entry) { return names(entry, name); });
}

void Environment::unset(const std::string& name) {
  std::erase_if(entries_, [&](const std::string& entry) { return names(entry, name); });
}

void Environment::set(const std::string& name, const std::string& value) {
  unset(name);
  entries_.push_back(name + "=" + value);
}

std::vector<std::string> environment_for_ranks(Environment ours) {
  ours.set_default("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  std::vector<std::string> passed;
  for (const std::string& entry : ours.entries())
    if (entry.rfind("MOTLEY_", 0) == 0 || entry.rfind("CUDA_DEVICE_ORDER=", 0) == 0)
      passed.push_back(entry);
  return passed;
}

std::string find_program(const std::string& program) {
  return find_program(program, Environment::inherited().value("PATH"));
}

std::string find_program(const std::string& program, const std::string& path) {
  if (program.find('/') != std::string::npos)
    return ::access(program.c_str(), X_OK) == 0 ? program : "";
  std::istringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + program;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

}  // namespace motley
