#pragma once
// The losses of a run, drawn: in the terminal and as an SVG file.

#include <cstdint>
#include <string>
#include <vector>

namespace motley {

struct LossPoint {
  int64_t step = 0;
  double loss = 0;
};

/// Rising steps. Losses that are not finite are left out of drawings.
struct LossCurves {
  std::string title;  ///< of the run
  std::vector<LossPoint> train;
  std::vector<LossPoint> held_out;
};

struct TerminalPlotOptions {
  int columns = 80;  ///< of the terminal; no line is wider
  int rows = 12;     ///< of the plot itself
  bool unicode = true;
};

/// Empty when there is nothing to draw. Ends in a newline.
std::string loss_plot(const LossCurves& curves, const TerminalPlotOptions& options);

/// A complete SVG document: training loss (each step pale, smoothed in full colour), held-out loss
/// with its points, axes with labels, a legend.
std::string loss_svg(const LossCurves& curves);

}  // namespace motley
