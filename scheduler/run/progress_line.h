#pragma once
// One line on stderr that says where things are: rewritten in place on a terminal, else printed
// anew now and then.

#include <cstdio>
#include <string>

#include "core/clock.h"
#include "core/ids.h"

namespace motley {

/// Where stderr shows at most one unfinished line.
class ProgressLine {
 public:
  /// Writes to `to`, which is borrowed: stderr but in tests.
  explicit ProgressLine(Clock& clock, std::FILE* to = stderr);
  ~ProgressLine() { finish(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Shown at most 5 times a second on a terminal, as much of it as one line holds; every 10 s
  /// elsewhere; `force` shows it now.
  void show(const std::string& text, bool force = false);
  /// A message that stays, above whatever is being rewritten.
  void note(const std::string& text);
  /// Ends the line being rewritten, so that others may write.
  void finish();

 private:
  void rewrite(const std::string& text);

  Clock& clock_;
  std::FILE* to_;
  bool terminal_;
  bool open_ = false;  ///< a line without an end stands there
  std::string last_;
  Nanos next_{0};
};

}  // namespace motley
