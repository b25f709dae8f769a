// Losses as an SVG document, written by hand: no script, no external font or style.

#include <algorithm>
#include <cmath>

#include "scheduler/report/axis.h"
#include "scheduler/report/loss_curves.h"
#include "scheduler/report/svg_text.h"
#include "scheduler/report/table.h"

namespace motley {
namespace {

constexpr double kWidth = 760, kHeight = 440;
constexpr double kLeft = 68, kRight = 24, kTop = 52, kBottom = 56;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr double kPlotHeight = kHeight - kTop - kBottom;
constexpr size_t kMostPoints = 2000;  // more than the picture has columns
constexpr const char* kTrainColour = "#2563a8";
constexpr const char* kHeldOutColour = "#d9640c";

std::vector<LossPoint> finite(const std::vector<LossPoint>& points) {
  std::vector<LossPoint> kept;
  for (const LossPoint& point : points) {
    if (std::isfinite(point.loss)) kept.push_back(point);
  }
  return kept;
}

/// Means of equal runs of points, few enough for a picture.
std::vector<LossPoint> thinned(const std::vector<LossPoint>& points) {
  const size_t run = (points.size() + kMostPoints - 1) / kMostPoints;
  if (run <= 1) return points;
  std::vector<LossPoint> kept;
  for (size_t i = 0; i < points.size(); i += run) {
    const size_t end = std::min(i + run, points.size());
    double sum = 0;
    for (size_t j = i; j < end; ++j) sum += points[j].loss;
    kept.push_back({points[(i + end) / 2].step, sum / static_cast<double>(end - i)});
  }
  return kept;
}

/// Each point the mean of its neighbourhood, a fiftieth of the curve, narrower at the ends.
std::vector<LossPoint> smoothed(const std::vector<LossPoint>& points) {
  const size_t half = points.size() / 100;
  std::vector<double> sums{0};
  for (const LossPoint& point : points) sums.push_back(sums.back() + point.loss);
  std::vector<LossPoint> smooth;
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t reach = std::min({half, i, points.size() - 1 - i});
    const double sum = sums[i + reach + 1] - sums[i - reach];
    smooth.push_back({points[i].step, sum / static_cast<double>(2 * reach + 1)});
  }
  return smooth;
}

class Picture {
 public:
  Picture(Axis x, Axis y) : x_(x), y_(y) { text_ = svg_begin(kWidth, kHeight); }

  void title(const std::string& title) {
    text_ += "<text x=\"" + svg_number(kLeft) +
             "\" y=\"28\" font-size=\"16\" font-weight=\"600\">" + svg_escaped(title) + "</text>\n";
  }

  void axes() {
    for (const double tick : y_.ticks()) {
      const std::string y = svg_number(at_y(tick));
      text_ += "<line x1=\"" + svg_number(kLeft) + "\" x2=\"" + svg_number(kWidth - kRight) +
               "\" y1=\"" + y + "\" y2=\"" + y + "\" stroke=\"#e3e6ea\"/>\n";
      label(kLeft - 9, at_y(tick) + 4.5, "end", y_.label(tick));
    }
    for (const double tick : x_.ticks()) {
      const std::string x = svg_number(at_x(tick));
      const double base = kTop + kPlotHeight;
      text_ += "<line x1=\"" + x + "\" x2=\"" + x + "\" y1=\"" + svg_number(base) + "\" y2=\"" +
               svg_number(base + 5) + "\" stroke=\"#8a929c\"/>\n";
      label(at_x(tick), base + 20, "middle", x_.label(tick));
    }
    text_ += "<path d=\"M" + svg_number(kLeft) + " " + svg_number(kTop) + "V" +
             svg_number(kTop + kPlotHeight) + "H" + svg_number(kWidth - kRight) +
             "\" fill=\"none\" stroke=\"#8a929c\"/>\n";
    label(kLeft + kPlotWidth / 2, kHeight - 14, "middle", "step");
    text_ += "<text transform=\"translate(20 " + svg_number(kTop + kPlotHeight / 2) +
             ") rotate(-90)\" text-anchor=\"middle\">loss</text>\n";
  }

  void line(const std::vector<LossPoint>& points, const std::string& style) {
    text_ += "<polyline points=\"";
    for (const LossPoint& point : points) {
      text_ += svg_number(at_x(static_cast<double>(point.step))) + "," +
               svg_number(at_y(point.loss)) + " ";
    }
    text_ += "\" fill=\"none\" stroke-linejoin=\"round\" " + style + "/>\n";
  }

  void dots(const std::vector<LossPoint>& points, const std::string& colour) {
    for (const LossPoint& point : points) {
      text_ += "<circle cx=\"" + svg_number(at_x(static_cast<double>(point.step))) + "\" cy=\"" +
               svg_number(at_y(point.loss)) + "\" r=\"3.2\" fill=\"" + colour +
               "\" stroke=\"#fff\"/>\n";
    }
  }

  /// One more entry at the top right, under the earlier ones.
  void legend(const std::string& colour, const std::string& what) {
    const double y = kTop + 16 + 20 * entries_++;
    const double x = kWidth - kRight - 176;
    text_ += "<line x1=\"" + svg_number(x) + "\" x2=\"" + svg_number(x + 24) + "\" y1=\"" +
             svg_number(y) + "\" y2=\"" + svg_number(y) + "\" stroke=\"" + colour +
             "\" stroke-width=\"2.5\"/>\n";
    label(x + 32, y + 4.5, "start", what);
  }

  std::string take() { return std::move(text_) + "</svg>\n"; }

 private:
  double at_x(double step) const { return kLeft + x_.place(step) * kPlotWidth; }
  double at_y(double loss) const { return kTop + (1 - y_.place(loss)) * kPlotHeight; }
  void label(double x, double y, const char* anchor, const std::string& what) {
    text_ += "<text x=\"" + svg_number(x) + "\" y=\"" + svg_number(y) + "\" text-anchor=\"" +
             anchor + "\">" + svg_escaped(what) + "</text>\n";
  }

  Axis x_, y_;
  std::string text_;
  int entries_ = 0;
};

}  // namespace

std::string loss_svg(const LossCurves& curves) {
  const std::vector<LossPoint> train = thinned(finite(curves.train));
  const std::vector<LossPoint> held_out = finite(curves.held_out);
  double first = INFINITY, last = -INFINITY, least = INFINITY, most = -INFINITY;
  for (const auto* points : {&train, &held_out}) {
    for (const LossPoint& point : *points) {
      first = std::min(first, static_cast<double>(point.step));
      last = std::max(last, static_cast<double>(point.step));
      least = std::min(least, point.loss);
      most = std::max(most, point.loss);
    }
  }
  if (train.empty() && held_out.empty()) first = 0, last = 1, least = 0, most = 1;
  Picture picture(Axis::counted(std::min(first, 0.0), last, 8), Axis::rounded(least, most, 7));
  picture.title(curves.title);
  picture.axes();
  if (!train.empty()) {
    const std::string stroke = std::string("stroke=\"") + kTrainColour + "\" ";
    picture.line(train, stroke + "stroke-opacity=\"0.25\" stroke-width=\"1\"");
    picture.line(smoothed(train), stroke + "stroke-width=\"2\"");
    if (train.size() == 1) picture.dots(train, kTrainColour);  // a line of one point shows nothing
    const double final_loss = smoothed(train).back().loss;
    picture.legend(kTrainColour, "training, last " + format_fixed(final_loss, 3));
  }
  if (!held_out.empty()) {
    picture.line(held_out, std::string("stroke=\"") + kHeldOutColour + "\" stroke-width=\"2\"");
    picture.dots(held_out, kHeldOutColour);
    picture.legend(kHeldOutColour, "held out, last " + format_fixed(held_out.back().loss, 3));
  }
  return picture.take();
}

}  // namespace motley
