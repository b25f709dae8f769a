#pragma once
// One axis of a drawing: round numbers to label it with, and where values fall.

#include <string>
#include <vector>

namespace motley {

class Axis {
 public:
  /// Spans at least [low, high] and ends on multiples of the distance between about `ticks` labels.
  static Axis rounded(double low, double high, int ticks);
  /// Spans exactly [low, high].
  static Axis exact(double low, double high, int ticks);
  /// The same for counts: labels are whole numbers.
  static Axis counted(double low, double high, int ticks);

  /// 0 at the low end, 1 at the high end.
  double place(double value) const;
  double low() const { return low_; }
  double high() const { return high_; }
  std::vector<double> ticks() const;  ///< within the span
  std::string label(double tick) const;

 private:
  Axis(double low, double high, double step) : low_(low), high_(high), step_(step) {}
  double low_, high_, step_;
};

}  // namespace motley
