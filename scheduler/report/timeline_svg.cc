// A simulated step as an SVG document.

#include <algorithm>
#include <string_view>
#include <utility>

#include "scheduler/report/axis.h"
#include "scheduler/report/plan_table.h"
#include "scheduler/report/svg_text.h"
#include "scheduler/report/table.h"
#include "scheduler/report/timeline.h"

namespace motley {
namespace {

constexpr double kLeftOfRows = 210, kRightOfRows = 78, kRowsWidth = 760;
constexpr double kPictureWidth = kLeftOfRows + kRowsWidth + kRightOfRows;
constexpr double kTopOfRows = 92, kRowHeight = 26, kBarHeight = 18, kBelowRows = 52;
constexpr double kNarrowest = 0.4;  // what is drawn for itself
constexpr size_t kLabelColumns = 26;

struct SpanColour {
  const char* what;
  const char* colour;
};
constexpr SpanColour kForwardColour{"forward", "#7fb2e5"};
constexpr SpanColour kBackwardColour{"backward", "#2563a8"};
constexpr SpanColour kUpdateColour{"update", "#7b4fa3"};
constexpr SpanColour kPassedColour{"between ranks of a replica", "#f2b36b"};
constexpr SpanColour kReduceColour{"reduction", "#d9640c"};
constexpr SpanColour kWaitColour{"waiting", "#e3e6ea"};

const SpanColour& colour_of(const TimelineSpan& span) {
  if (span.waiting) return kWaitColour;
  switch (span.kind) {
    case SpanKind::kUpdate:
      return kUpdateColour;
    case SpanKind::kForward:
      return kForwardColour;
    case SpanKind::kBackward:
      return kBackwardColour;
    case SpanKind::kReceive:
    case SpanKind::kGroupSum:
      return kPassedColour;
    case SpanKind::kReduce:
      return kReduceColour;
  }
  return kWaitColour;
}

std::string svg_label(double x, double y, const char* anchor, const std::string& what) {
  return "<text x=\"" + svg_number(x) + "\" y=\"" + svg_number(y) + "\" text-anchor=\"" + anchor +
         "\">" + svg_escaped(what) + "</text>\n";
}

std::string svg_bar(double x, double y, double width, double height, const std::string& colour,
                    const std::string& title) {
  const std::string tag = "<rect x=\"" + format_fixed(x, 2) + "\" y=\"" + svg_number(y) +
                          "\" width=\"" + format_fixed(width, 2) + "\" height=\"" +
                          svg_number(height) + "\" fill=\"" + colour + "\"";
  if (title.empty()) return tag + "/>\n";
  return tag + "><title>" + svg_escaped(title) + "</title></rect>\n";
}

/// Seconds or milliseconds, whatever gives few digits.
struct TimeUnit {
  explicit TimeUnit(double seconds) {
    if (seconds < 1e-3)
      name = "microseconds", per_second = 1e6;
    else if (seconds < 1)
      name = "milliseconds", per_second = 1e3;
  }
  const char* name = "seconds";
  double per_second = 1;
};

class TimelinePicture {
 public:
  explicit TimelinePicture(const DrawnStep& step)
      : step_(step),
        rows_(std::min(kMostDrawnRanks, step.timeline.ranks.size())),
        seconds_(seconds_of(step.timeline.step)),
        unit_(seconds_),
        axis_(Axis::exact(0, seconds_ * unit_.per_second, 8)) {}

  std::string draw() {
    const double below = static_cast<double>(rows_) * kRowHeight;
    text_ = svg_begin(kPictureWidth, kTopOfRows + below + kBelowRows);
    const std::string evidence = name_of(weakest_evidence(step_.profile, step_.plan));
    text_ += "<text x=\"16\" y=\"28\" font-size=\"16\" font-weight=\"600\">" +
             svg_escaped("One step of " + step_.job + ": " + format_duration(seconds_) + " (" +
                         evidence + ")") +
             "</text>\n";
    legend();
    grid(kTopOfRows + below);
    for (size_t rank = 0; rank < rows_; ++rank) row(rank);
    if (rows_ < step_.timeline.ranks.size())
      text_ += svg_label(16, kTopOfRows + below + 20, "start",
                         "and " + std::to_string(step_.timeline.ranks.size() - rows_) + " more");
    return std::move(text_) + "</svg>\n";
  }

 private:
  double at(double seconds) const {
    return kLeftOfRows + (seconds_ > 0 ? seconds / seconds_ : 0) * kRowsWidth;
  }

  void legend() {
    double x = 16;
    for (const SpanColour& colour : {kForwardColour, kBackwardColour, kUpdateColour, kPassedColour,
                                     kReduceColour, kWaitColour}) {
      text_ += svg_bar(x, 46, 14, 14, colour.colour, "");
      text_ += svg_label(x + 20, 58, "start", colour.what);
      x += 48 + 7.4 * static_cast<double>(std::string_view(colour.what).size());
    }
    text_ += svg_label(kPictureWidth - 8, 84, "end", "busy");
  }

  void grid(double bottom) {
    for (const double tick : axis_.ticks()) {
      const std::string x = svg_number(at(tick / unit_.per_second));
      text_ += "<line x1=\"" + x + "\" x2=\"" + x + "\" y1=\"" + svg_number(kTopOfRows - 4) +
               "\" y2=\"" + svg_number(bottom + 5) + "\" stroke=\"#e3e6ea\"/>\n";
      text_ += svg_label(at(tick / unit_.per_second), bottom + 20, "middle", axis_.label(tick));
    }
    text_ += svg_label(kLeftOfRows + kRowsWidth / 2, bottom + 40, "middle", unit_.name);
  }

  /// What is too narrow to be seen lengthens what is before it.
  void row(size_t rank) {
    const RankTimeline& line = step_.timeline.ranks[rank];
    const RankPlacement& place = step_.plan.ranks[rank];
    const double y = kTopOfRows + static_cast<double>(rank) * kRowHeight;
    text_ += svg_label(16, y + 14, "start",
                       cut_to_width(place.device + "  " + place.type, kLabelColumns));
    for (size_t i = 0; i < line.spans.size();) {
      size_t last = i;
      while (last + 1 < line.spans.size() &&
             at(seconds_of(line.spans[last + 1].end)) - at(seconds_of(line.spans[last + 1].begin)) <
                 kNarrowest)
        ++last;
      const double from = at(seconds_of(line.spans[i].begin));
      const double to = at(seconds_of(line.spans[last].end));
      text_ += svg_bar(from, y, to - from, kBarHeight, colour_of(line.spans[i]).colour,
                       title_of(line.spans[i]));
      i = last + 1;
    }
    const double busy = seconds_of(line.time_in(SpanClass::kBusy));
    text_ += svg_label(kPictureWidth - 8, y + 14, "end",
                       format_percent(seconds_ > 0 ? busy / seconds_ : 0));
  }

  static std::string title_of(const TimelineSpan& span) {
    std::string title = colour_of(span).what;
    if (span.micro_batch >= 0) title += " " + std::to_string(span.micro_batch);
    return title + ": " + format_duration(seconds_of(span.end - span.begin));
  }

  const DrawnStep& step_;
  size_t rows_;
  double seconds_;
  TimeUnit unit_;
  Axis axis_;
  std::string text_;
};

}  // namespace

std::string timeline_svg(const DrawnStep& step) { return TimelinePicture(step).draw(); }

}  // namespace motley
