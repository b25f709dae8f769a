#include "core/json_place.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

constexpr std::string_view kText = R"({
  "name": "a \"quoted\" { [ , name",
  "list": [1, {"inner": [ ]}, [2,
    3]],
  "empty": {}, "last": -1.5e3
}
)";

std::string place_of(std::string_view pointer) {
  const SourcePlace place = place_in_json(kText, pointer);
  return std::to_string(place.line) + ":" + std::to_string(place.column);
}

TEST(JsonPlace, IsWhereTheValueBegins) {
  EXPECT_EQ(place_of(""), "1:1");
  EXPECT_EQ(place_of("/name"), "2:11");
  EXPECT_EQ(place_of("/list"), "3:11");
  EXPECT_EQ(place_of("/list/0"), "3:12");
  EXPECT_EQ(place_of("/list/1/inner"), "3:25");
  EXPECT_EQ(place_of("/list/2/0"), "3:32");
  EXPECT_EQ(place_of("/list/2/1"), "4:5");
  EXPECT_EQ(place_of("/empty"), "5:12");
  EXPECT_EQ(place_of("/last"), "5:24");
}

TEST(JsonPlace, OfWhatIsMissingIsWhereItWouldBe) {
  EXPECT_EQ(place_of("/list/1/outer"), "3:15");
  EXPECT_EQ(place_of("/list/9/inner"), "3:11");
  EXPECT_EQ(place_of("/empty/0"), "5:12");
  EXPECT_EQ(place_of("/last/0"), "5:24");
  EXPECT_EQ(place_of("/other"), "1:1");
}

TEST(JsonPlace, AnErrorGetsThePlaceItsMessageNames) {
  const auto text_of = [](const std::string& message) {
    return placed_in({ErrorCode::kInvalidSpec, message, {}}, kText, "p.json").to_string();
  };
  EXPECT_EQ(text_of("/list/1: no"), "p.json:3:15: /list/1: no");
  EXPECT_EQ(text_of("no pointer: no"), "p.json: no pointer: no");
  const Error placed{ErrorCode::kInvalidSpec, "/list: no", {"other", 7, 8}};
  EXPECT_EQ(placed_in(placed, kText, "p.json").place.file, "other");
}

}  // namespace
}  // namespace motley
