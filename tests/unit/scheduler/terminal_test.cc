#include "scheduler/run/terminal.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(Terminal, IsNotSteeredByWhatOthersWrote) {
  EXPECT_EQ(without_controls("a\x1b[2Jb\x07"), "a^[[2Jb^G");
  EXPECT_EQ(without_controls("\xc2\x9b"
                             "31m\xc2\x9d"),
            "^[[31m^[]")
      << "the second set";
  EXPECT_EQ(without_controls("over\rwritten\x7f"), "over^Mwritten^?");
  EXPECT_EQ(without_controls(std::string("\0", 1)), "^@");
}

TEST(Terminal, ShowsTextAsItIs) {
  EXPECT_EQ(without_controls("caf\xc3\xa9\tx \xe2\x82\xac\n"), "caf\xc3\xa9\tx \xe2\x82\xac\n");
  EXPECT_EQ(without_controls("a\r\nb\n"), "a\nb\n");
  EXPECT_EQ(without_controls("\xc2\xa0\xc2"), "\xc2\xa0\xc2");
}

TEST(Terminal, OtherStreamsGetTheBytes) {
  std::FILE* file = std::tmpfile();
  EXPECT_EQ(shown_on(file, "\x1b[2J"), "\x1b[2J");
  std::fclose(file);
}

}  // namespace
}  // namespace motley
