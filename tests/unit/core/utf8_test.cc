#include "core/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace motley {
namespace {

TEST(Utf8, TellsTextFromOtherBytes) {
  for (const std::string text : {"", "plain", "line\nend\x7f", "caf\xc3\xa9", "\xe2\x82\xac",
                                 "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(is_utf8(text)) << text;
  for (const std::string bytes : {"caf\xe9", "\xc3", "\x80", "\xc0\xaf", "\xe0\x80\xaf",
                                  "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff", "\xe2\x82"})
    EXPECT_FALSE(is_utf8(bytes)) << bytes;
}

}  // namespace
}  // namespace motley
