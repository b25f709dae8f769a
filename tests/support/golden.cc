#include "tests/support/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

#include "tests/support/paths.h"

namespace motley::testing {
namespace {

std::filesystem::path path_of(const std::string& name) {
  return source_dir() / "tests" / "golden" / name;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

std::string golden(const std::string& name) {
  std::ifstream file(path_of(name));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void expect_golden(const std::string& name, const std::string& text) {
  const char* update = std::getenv("MOTLEY_UPDATE_GOLDEN");
  if (update != nullptr && std::string(update) == "1") {
    std::filesystem::create_directories(path_of(name).parent_path());
    std::ofstream(path_of(name)) << text;
  }
  const std::string before = golden(name);
  if (before == text) return;
  ADD_FAILURE() << "tests/golden/" << name << " differs; if that is meant, MOTLEY_UPDATE_GOLDEN=1 "
                << "writes it anew\n"
                << ::testing::internal::edit_distance::CreateUnifiedDiff(lines_of(before),
                                                                         lines_of(text));
}

}  // namespace motley::testing
