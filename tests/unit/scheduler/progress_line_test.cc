#include "scheduler/run/progress_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "scheduler/launch/child_process.h"

namespace motley {
namespace {

/// What a terminal of so many columns is sent while `text` is shown.
std::string shown_on_terminal(unsigned short columns, const std::string& text) {
  int ours = -1, theirs = -1;
  winsize size{};
  size.ws_col = columns;
  EXPECT_EQ(::openpty(&ours, &theirs, nullptr, nullptr, &size), 0);
  const Fd reader(ours);
  std::FILE* terminal = ::fdopen(theirs, "w");
  ProgressLine line(steady_clock(), terminal);
  line.show(text, true);
  std::array<char, 512> bytes{};
  const ssize_t count = ::read(ours, bytes.data(), bytes.size());
  line.note("done");
  std::fclose(terminal);
  return {bytes.data(), static_cast<size_t>(std::max<ssize_t>(count, 0))};
}

TEST(ProgressLine, IsCutToTheTerminal) {
  const std::string text = "step 120/400  30 %  loss 3.2140  82.1 samples/s  1m05s left";
  EXPECT_EQ(shown_on_terminal(80, text), "\r" + text + "\x1b[K");
  EXPECT_EQ(shown_on_terminal(30, text), "\rstep 120/400  30 %  loss 3.21\x1b[K");
  EXPECT_EQ(shown_on_terminal(0, text), "\r" + text + "\x1b[K") << "a terminal that does not say";
}

}  // namespace
}  // namespace motley
