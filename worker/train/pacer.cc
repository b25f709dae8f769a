#include "worker/train/pacer.h"

#include "core/clock.h"

namespace motley {

Pacer::Pacer(const DeviceSpec& device, PaceClock clock, double pace_flops)
    : clock_(clock), paced_(device.paced.has_value()) {
  if (!paced_) return;
  pace_ = *device.paced;
  flops_per_second_ = pace_flops * pace_.speed;
}

double Pacer::now() const { return seconds_of(virtual_clock() ? logical_ : steady_clock().now()); }

void Pacer::begin_section() {
  section_start_ = steady_clock().now();
  emulated_seconds_ = 0;
  empty_ = true;
  overhead_paid_ = false;
}

void Pacer::charge(double flops, int samples) {
  empty_ = false;
  if (!paced_) return;
  if (samples > 0 && !overhead_paid_) {
    emulated_seconds_ += seconds_of(pace_.overhead);
    overhead_paid_ = true;
  }
  const double b = samples;
  const double slowdown = samples > 0 ? (b + pace_.half_batch) / b : 1.0;
  emulated_seconds_ += flops / flops_per_second_ * slowdown;
}

double Pacer::section_seconds() const {
  return paced_ ? emulated_seconds_ : seconds_of(steady_clock().now() - section_start_);
}

double Pacer::end_section() {
  if (empty_) return 0;
  const Nanos real = steady_clock().now() - section_start_;
  const Nanos length = paced_ ? nanos_of_seconds(emulated_seconds_) : real;
  if (paced_) ++sections_;
  if (virtual_clock()) {
    logical_ += length;
    return seconds_of(length);
  }
  if (!paced_) return seconds_of(real);
  if (real > length) ++overruns_;
  steady_clock().sleep_until(section_start_ + length);
  return seconds_of(steady_clock().now() - section_start_);
}

Result<Unit> Pacer::meet(Communicator& communicator) {
  if (!virtual_clock() || communicator.size() == 1) return Unit{};
  int64_t latest = logical_.value();
  MOTLEY_TRY_VOID(communicator.all_reduce_max(std::span(&latest, 1)));
  logical_ = Nanos(latest);
  return Unit{};
}

}  // namespace motley
