#include "scheduler/report/loss_curves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "scheduler/report/table.h"
#include "tests/support/golden.h"
#include "tests/unit/scheduler/report/made_up_run.h"

namespace motley {
namespace {

using testing::expect_golden;
using testing::made_up_losses;

constexpr TerminalPlotOptions kTerminal{.columns = 60, .rows = 8, .unicode = true};
constexpr TerminalPlotOptions kAscii{.columns = 60, .rows = 8, .unicode = false};

LossCurves with_nan(LossCurves curves) {
  curves.train[20].loss = NAN;
  for (LossPoint& point : curves.held_out)
    if (point.step > 30) point.loss = INFINITY;
  return curves;
}

LossCurves single_step() { return {"gpt/1", {{1, 5.5}}, {}}; }

/// From step 101 on, as after the metrics of the first attempt were lost.
LossCurves resumed() {
  LossCurves curves = made_up_losses(150);
  std::erase_if(curves.train, [](const LossPoint& point) { return point.step <= 100; });
  std::erase_if(curves.held_out, [](const LossPoint& point) { return point.step <= 100; });
  return curves;
}

TEST(LossPlot, DrawsBothCurves) {
  expect_golden("report/loss.txt", loss_plot(made_up_losses(50), kTerminal));
  expect_golden("report/loss.ascii.txt", loss_plot(made_up_losses(50), kAscii));
}

TEST(LossPlot, LeavesOutWhatIsNotFinite) {
  expect_golden("report/loss_nan.txt", loss_plot(with_nan(made_up_losses(50)), kAscii));
}

TEST(LossPlot, DrawsASingleStep) {
  expect_golden("report/loss_single.txt", loss_plot(single_step(), kAscii));
}

TEST(LossPlot, BeginsWhereTheRecordBegins) {
  expect_golden("report/loss_resumed.txt", loss_plot(resumed(), kAscii));
}

TEST(LossPlot, IsEmptyWithoutAnythingToDraw) {
  EXPECT_EQ(loss_plot({"gpt/1", {}, {}}, kTerminal), "");
  EXPECT_EQ(loss_plot({"gpt/1", {{1, NAN}, {2, INFINITY}}, {}}, kTerminal), "");
}

TEST(LossPlot, NoLineIsWiderThanTheTerminal) {
  for (const int columns : {20, 40, 80, 120}) {
    for (const bool unicode : {true, false}) {
      std::istringstream lines(
          loss_plot(made_up_losses(500), {.columns = columns, .rows = 12, .unicode = unicode}));
      std::string line;
      std::getline(lines, line);  // the legend
      while (std::getline(lines, line))
        EXPECT_LE(display_width(line), static_cast<size_t>(columns)) << line;
    }
  }
}

TEST(LossSvg, DrawsBothCurves) { expect_golden("report/loss.svg", loss_svg(made_up_losses(50))); }

TEST(LossSvg, LeavesOutWhatIsNotFinite) {
  const std::string svg = loss_svg(with_nan(made_up_losses(50)));
  expect_golden("report/loss_nan.svg", svg);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(LossSvg, DrawsASingleStep) {
  expect_golden("report/loss_single.svg", loss_svg(single_step()));
}

TEST(LossSvg, DrawsEmptyAxesWithoutLosses) {
  expect_golden("report/loss_empty.svg", loss_svg({"gpt/1", {}, {}}));
}

TEST(LossSvg, EscapesItsTitle) {
  const std::string svg = loss_svg({"<b>&\x01/1", {{1, 2}, {2, 1}}, {}});
  EXPECT_NE(svg.find(">&lt;b&gt;&amp;/1<"), std::string::npos) << svg;
}

TEST(LossSvg, ThinsALongRunToAPicturesPoints) {
  const std::string svg = loss_svg(made_up_losses(100'000));
  const size_t line = svg.find("<polyline points=\"");
  const auto commas =
      std::count(svg.begin() + static_cast<std::ptrdiff_t>(line),
                 svg.begin() + static_cast<std::ptrdiff_t>(svg.find("/>", line)), ',');
  EXPECT_LE(commas, 2000);
  EXPECT_GE(commas, 1000);
}

}  // namespace
}  // namespace motley
