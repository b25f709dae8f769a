#include "scheduler/run/progress_line.h"

#include <unistd.h>

#include <algorithm>

#include "core/units.h"
#include "scheduler/report/table.h"
#include "scheduler/run/terminal.h"

namespace motley {
namespace {

constexpr double kTerminalPeriod = 0.2;
constexpr double kPlainPeriod = 10;

}  // namespace

std::string progress_text(const Progress& progress) {
  char text[160];
  const double share = progress.steps > 0 ? 100.0 * static_cast<double>(progress.step) /
                                                static_cast<double>(progress.steps)
                                          : 0;
  std::snprintf(text, sizeof text, "step %lld/%lld  %.0f %%  loss %.4f",
                static_cast<long long>(progress.step), static_cast<long long>(progress.steps),
                share, progress.loss);
  std::string line = text;
  if (progress.samples_per_second > 0) {
    std::snprintf(text, sizeof text, "  %.4g samples/s", progress.samples_per_second);
    line += text;
  }
  if (progress.seconds_left) line += "  " + format_seconds(*progress.seconds_left) + " left";
  return line;
}

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
