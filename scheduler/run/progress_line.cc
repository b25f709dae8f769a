#include "scheduler/run/progress_line.h"

#include <unistd.h>

#include <cstdio>

#include "core/units.h"

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

ProgressLine::ProgressLine(Clock& clock)
    : clock_(clock), terminal_(::isatty(STDERR_FILENO) == 1), next_(clock.now()) {}

void ProgressLine::show(const std::string& text, bool force) {
  last_ = text;
  if (!force && clock_.now() < next_) return;
  next_ = clock_.now() + nanos_of_seconds(terminal_ ? kTerminalPeriod : kPlainPeriod);
  if (terminal_)
    std::fprintf(stderr, "\r%s\x1b[K", text.c_str());
  else
    std::fprintf(stderr, "%s\n", text.c_str());
  std::fflush(stderr);
  open_ = terminal_;
}

void ProgressLine::note(const std::string& text) {
  if (open_) std::fprintf(stderr, "\r\x1b[K");
  open_ = false;
  std::fprintf(stderr, "%s\n", text.c_str());
}

void ProgressLine::finish() {
  if (!open_) return;
  std::fprintf(stderr, "\r%s\x1b[K\n", last_.c_str());
  open_ = false;
}

}  // namespace motley
