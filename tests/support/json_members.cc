#include "tests/support/json_members.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace motley::testing {

using nlohmann::json;

void expect_members_are_needed(const json& document, const TryToRead& read,
                               const std::set<std::string>& optional) {
  EXPECT_EQ(read(document), "");
  const json flat = document.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    const json::json_pointer path(pointer);
    if (path.back().find_first_not_of("0123456789") == std::string::npos) continue;  // of a list
    json without = document;
    without[path.parent_pointer()].erase(path.back());
    const std::string error = read(without);
    if (optional.contains(path.back()))
      EXPECT_EQ(error, "") << pointer;
    else
      EXPECT_NE(error.find("'" + path.back() + "' is missing"), std::string::npos)
          << pointer << ": " << error;
  }
}

void expect_members_are_typed(const json& document, const TryToRead& read) {
  EXPECT_EQ(read(document), "");
  const json flat = document.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    json spoilt = document;
    spoilt[json::json_pointer(pointer)] = json::object();
    const std::string error = read(spoilt);
    EXPECT_EQ(error.rfind(pointer + ": expected", 0), 0U) << pointer << ": " << error;
  }
}

}  // namespace motley::testing
