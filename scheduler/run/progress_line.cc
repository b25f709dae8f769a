#include "scheduler/run/progress_line.h"

#include <unistd.h>

#include <algorithm>
#include <optional>

#include "scheduler/report/table.h"
#include "scheduler/run/terminal.h"

namespace motley {
namespace {

constexpr double kTerminalPeriod = 0.2;
constexpr double kPlainPeriod = 10;

}  // namespace

ProgressLine::ProgressLine(Clock& clock, std::FILE* to)
    : clock_(clock), to_(to), terminal_(::isatty(::fileno(to)) == 1), next_(clock.now()) {}

void ProgressLine::show(const std::string& text, bool force) {
  last_ = text;
  if (!force && clock_.now() < next_) return;
  next_ = clock_.now() + nanos_of_seconds(terminal_ ? kTerminalPeriod : kPlainPeriod);
  if (terminal_)
    rewrite(text);
  else
    std::fprintf(to_, "%s\n", text.c_str());
  std::fflush(to_);
  open_ = terminal_;
}

/// A line that wraps cannot be taken back, and in the last column some terminals clear what they
/// have just shown.
void ProgressLine::rewrite(const std::string& text) {
  const std::optional<int> columns = terminal_columns(::fileno(to_));
  const std::string shown =
      columns ? cut_to_width(text, static_cast<size_t>(std::max(1, *columns - 1))) : text;
  std::fprintf(to_, "\r%s\x1b[K", shown.c_str());
}

void ProgressLine::note(const std::string& text) {
  if (open_) std::fprintf(to_, "\r\x1b[K");
  open_ = false;
  std::fprintf(to_, "%s\n", text.c_str());
}

void ProgressLine::finish() {
  if (!open_) return;
  std::fprintf(to_, "\r%s\x1b[K\n", last_.c_str());
  open_ = false;
}

}  // namespace motley
