#include "core/json_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

std::string refusal(const std::string& text, ErrorCode code = ErrorCode::kInvalidSpec) {
  const auto json = parse_json_file(text, "plan.json", code);
  if (json) return "";
  EXPECT_EQ(json.error().code, code);
  return json.error().to_string();
}

TEST(JsonFile, FaultsHaveAPlace) {
  EXPECT_EQ(refusal("{\"a\": 1,\n  \"b\": }\n"), "plan.json:2:8: not JSON: broken at byte 17");
  EXPECT_EQ(refusal("", ErrorCode::kCorrupt), "plan.json:1:1: not JSON: it ends too soon");
  EXPECT_EQ(refusal("{\"a\": 1,\n"), "plan.json:2:1: not JSON: it ends too soon");
  EXPECT_EQ(refusal("[1e999]"), "plan.json: not JSON: a number is out of range");
  EXPECT_EQ(refusal(std::string(100000, '[')), "plan.json: JSON nested deeper than 64");
}

TEST(JsonFile, ReadsWhatIsThere) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/a.json";
  std::ofstream(path) << R"({"a": [1, 2]})";
  const auto json = read_json_file(real_file_system(), path, ErrorCode::kCorrupt);
  ASSERT_TRUE(json) << json.error().to_string();
  EXPECT_EQ((*json)["a"][1], 2);
}

TEST(JsonFile, AMissingFileIsNotFoundWhateverItsCode) {
  const auto json = read_json_file(real_file_system(), "/nowhere/a.json", ErrorCode::kCorrupt);
  ASSERT_FALSE(json);
  EXPECT_EQ(json.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace motley
