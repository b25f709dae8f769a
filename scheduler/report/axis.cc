#include "scheduler/report/axis.h"

#include <algorithm>
#include <cmath>

#include "scheduler/report/table.h"

namespace motley {
namespace {

/// 1, 2 or 5 times a power of ten, near span / count.
double round_step(double span, int count) {
  const double raw = span / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power * (1 + 1e-9)) return factor * power;
  }
  return 10 * power;
}

/// A span to draw in, also where there is but one value.
void widen(double* low, double* high) {
  if (*high > *low) return;
  const double margin = std::max(std::abs(*low) * 0.05, 1e-6);
  *low -= margin;
  *high += margin;
}

}  // namespace

Axis Axis::rounded(double low, double high, int ticks) {
  widen(&low, &high);
  const double step = round_step(high - low, ticks);
  return {std::floor(low / step + 1e-9) * step, std::ceil(high / step - 1e-9) * step, step};
}

Axis Axis::exact(double low, double high, int ticks) {
  widen(&low, &high);
  return {low, high, round_step(high - low, ticks)};
}

Axis Axis::counted(double low, double high, int ticks) {
  Axis axis = exact(low, high, ticks);
  axis.step_ = std::max(1.0, axis.step_);
  return axis;
}

double Axis::place(double value) const { return (value - low_) / (high_ - low_); }

std::vector<double> Axis::ticks() const {
  std::vector<double> ticks;
  const double first = std::ceil(low_ / step_ - 1e-9);
  for (double i = first; i * step_ <= high_ + step_ * 1e-9; ++i)
    ticks.push_back(i * step_ + 0.0);  // -0 becomes 0
  return ticks;
}

std::string Axis::label(double tick) const {
  const int decimals = std::clamp(static_cast<int>(-std::floor(std::log10(step_) + 1e-9)), 0, 9);
  return format_fixed(tick, decimals);
}

}  // namespace motley
