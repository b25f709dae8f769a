// Losses in the terminal: a curve of Braille dots (2 x 4 in a character), or of stars in ASCII.

#include <algorithm>
#include <cmath>
#include <optional>

#include "scheduler/report/axis.h"
#include "scheduler/report/loss_curves.h"
#include "scheduler/report/table.h"

namespace motley {
namespace {

struct Bounds {
  double first_step = INFINITY, last_step = -INFINITY;
  double least = INFINITY, most = -INFINITY;
  bool empty() const { return !(least <= most); }
  void include(const std::vector<LossPoint>& points) {
    for (const LossPoint& point : points) {
      if (!std::isfinite(point.loss)) continue;
      first_step = std::min(first_step, static_cast<double>(point.step));
      last_step = std::max(last_step, static_cast<double>(point.step));
      least = std::min(least, point.loss);
      most = std::max(most, point.loss);
    }
  }
};

/// Characters of the plot area, each a grid of dots or one mark.
class Canvas {
 public:
  Canvas(int columns, int rows, bool unicode)
      : columns_(columns),
        rows_(rows),
        unicode_(unicode),
        dots_(static_cast<size_t>(columns) * static_cast<size_t>(rows), 0),
        marked_(dots_.size(), false) {}

  int dot_columns() const { return unicode_ ? columns_ * 2 : columns_; }
  int dot_rows() const { return unicode_ ? rows_ * 4 : rows_; }

  /// x from the left, y from the top, in dots.
  void dot(int x, int y) {
    constexpr uint8_t kBraille[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (unicode_) {
      dots_[at(x / 2, y / 4)] |= kBraille[y % 4][x % 2];
    } else {
      dots_[at(x, y)] = 1;
    }
  }
  void mark(int x, int y) { marked_[unicode_ ? at(x / 2, y / 4) : at(x, y)] = true; }

  std::string row(int row) const {
    std::string text;
    for (int column = 0; column < columns_; ++column) {
      const size_t cell = at(column, row);
      if (marked_[cell]) {
        text += unicode_ ? "●" : "o";
      } else if (dots_[cell] == 0) {
        text += ' ';
      } else {
        text += unicode_ ? braille(dots_[cell]) : "*";
      }
    }
    return text;
  }

 private:
  size_t at(int column, int row) const {
    return static_cast<size_t>(row) * static_cast<size_t>(columns_) + static_cast<size_t>(column);
  }
  /// U+2800 plus the dots, in UTF-8.
  static std::string braille(uint8_t dots) {
    return {'\xE2', static_cast<char>(0xA0 | (dots >> 6)), static_cast<char>(0x80 | (dots & 0x3F))};
  }

  int columns_, rows_;
  bool unicode_;
  std::vector<uint8_t> dots_;
  std::vector<bool> marked_;
};

int dot_of(double place, int dots) {
  return std::clamp(static_cast<int>(std::lround(place * (dots - 1))), 0, dots - 1);
}

struct Dot {
  int x = 0, y = 0;
};

/// Every column after `from` up to `to`, each joined to the one before by a vertical run.
void draw_stroke(Dot from, Dot to, Canvas* canvas) {
  int previous = from.y;
  for (int x = from.x + 1; x <= to.x; ++x) {
    const double share = static_cast<double>(x - from.x) / (to.x - from.x);
    const int y = static_cast<int>(std::lround(from.y + share * (to.y - from.y)));
    const int step = previous < y ? 1 : -1;
    for (int i = previous == y ? y : previous + step; i != y; i += step) canvas->dot(x, i);
    canvas->dot(x, y);
    previous = y;
  }
}

/// The mean of what falls on each column of dots, as one line.
void draw_line(const std::vector<LossPoint>& points, const Axis& x, const Axis& y, Canvas* canvas) {
  const auto columns = static_cast<size_t>(canvas->dot_columns());
  std::vector<double> sums(columns, 0);
  std::vector<int> counts(columns, 0);
  for (const LossPoint& point : points) {
    if (!std::isfinite(point.loss)) continue;
    const auto column = static_cast<size_t>(
        dot_of(x.place(static_cast<double>(point.step)), canvas->dot_columns()));
    sums[column] += point.loss;
    ++counts[column];
  }
  std::optional<Dot> previous;
  for (size_t column = 0; column < columns; ++column) {
    if (counts[column] == 0) continue;
    const double place = y.place(sums[column] / counts[column]);
    const Dot dot{static_cast<int>(column), dot_of(1 - place, canvas->dot_rows())};
    if (previous)
      draw_stroke(*previous, dot, canvas);
    else
      canvas->dot(dot.x, dot.y);
    previous = dot;
  }
}

void draw_marks(const std::vector<LossPoint>& points, const Axis& x, const Axis& y,
                Canvas* canvas) {
  for (const LossPoint& point : points) {
    if (!std::isfinite(point.loss)) continue;
    canvas->mark(dot_of(x.place(static_cast<double>(point.step)), canvas->dot_columns()),
                 dot_of(1 - y.place(point.loss), canvas->dot_rows()));
  }
}

/// First and last step below the ends of the axis.
std::string step_labels(const Axis& x, int columns) {
  const std::string first = format_fixed(x.low(), 0);
  const std::string last = "step " + format_fixed(x.high(), 0);
  const auto width = static_cast<size_t>(columns);
  const size_t used = first.size() + last.size();
  return first + std::string(width > used ? width - used : 1, ' ') + last;
}

}  // namespace

std::string loss_plot(const LossCurves& curves, const TerminalPlotOptions& options) {
  Bounds bounds;
  bounds.include(curves.train);
  bounds.include(curves.held_out);
  if (bounds.empty()) return {};
  const Axis x = Axis::exact(bounds.first_step, bounds.last_step, 4);
  const Axis y = Axis::exact(bounds.least, bounds.most, std::max(2, options.rows / 3));
  std::vector<std::string> labels(static_cast<size_t>(options.rows));
  size_t label_width = 0;
  for (const double tick : y.ticks()) {
    std::string& label = labels[static_cast<size_t>(dot_of(1 - y.place(tick), options.rows))];
    label = y.label(tick);
    label_width = std::max(label_width, label.size());
  }
  const int columns = std::max(10, options.columns - static_cast<int>(label_width) - 2);
  Canvas canvas(columns, options.rows, options.unicode);
  draw_line(curves.train, x, y, &canvas);
  draw_marks(curves.held_out, x, y, &canvas);

  const char* const bar = options.unicode ? "│" : "|";
  const char* const tick_bar = options.unicode ? "┤" : "+";
  const std::string line = options.unicode ? "⣀" : "*";
  const std::string point = options.unicode ? "●" : "o";
  std::string text = "loss: " + line + " training" +
                     (curves.held_out.empty() ? "" : ", " + point + " held out") + "\n";
  for (int row = 0; row < options.rows; ++row) {
    const std::string& label = labels[static_cast<size_t>(row)];
    std::string drawn = std::string(label_width - label.size(), ' ') + label + ' ' +
                        (label.empty() ? bar : tick_bar) + canvas.row(row);
    drawn.erase(drawn.find_last_not_of(' ') + 1);
    text += drawn + "\n";
  }
  return text + std::string(label_width + 2, ' ') + step_labels(x, columns) + "\n";
}

}  // namespace motley
