#pragma once
// A rank's time line. On a real device it is the steady clock; on a paced one (DESIGN.md §4) each
// section of work between two communications is stretched to the time the device it stands for
// would have taken:
//
//   overhead + Σ FLOPs / (flops · speed · b / (b + half_batch))     over the section's pieces of b
//   samples
//
// `sleep` waits for that deadline, absolute, so that errors do not add up. `virtual` only moves a
// logical clock, which becomes the group's maximum wherever ranks meet: exact, and instant.

#include "comm/communicator.h"
#include "core/ids.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"

namespace motley {

/// One thread. Calls come in the order begin_section, charge…, end_section, [meet], begin_section…
class Pacer {
 public:
  Pacer(const DeviceSpec& device, PaceClock clock, double pace_flops);

  /// Seconds on this rank's clock; the origin is arbitrary.
  double now() const;

  void begin_section();
  /// One piece of the section's work: forward and backward of `samples`, or with samples = 0 work
  /// whose speed does not depend on the batch and that pays no overhead (the optimizer).
  void charge(double flops, int samples);
  /// How long the section is so far: emulated, or real on a device that is not paced.
  double section_seconds() const;
  /// Waits out the section; returns its seconds. An section without a charge takes no time.
  double end_section();

  /// Where ranks meet (beside a collective): under the virtual clock everybody's time becomes the
  /// latest.
  Result<Unit> meet(Communicator& communicator);

  /// Under the virtual clock: this rank's time, and a message from one whose time was `sent`.
  Nanos logical_time() const { return logical_; }
  void catch_up(Nanos sent) { logical_ = std::max(logical_, sent); }

  bool paced() const { return paced_; }
  bool virtual_clock() const { return clock_ == PaceClock::kVirtual; }
  /// Sections whose real work took longer than the emulated time, and all paced sections. Only
  /// `sleep` counts overruns: the virtual clock does not depend on real time.
  int64_t overruns() const { return overruns_; }
  int64_t sections() const { return sections_; }

 private:
  PaceClock clock_;
  bool paced_ = false;
  PaceSpec pace_;
  double flops_per_second_ = 0;

  Nanos logical_{0};
  Nanos section_start_{0};
  double emulated_seconds_ = 0;
  bool empty_ = true;  ///< nothing charged yet
  bool overhead_paid_ = false;
  int64_t overruns_ = 0;
  int64_t sections_ = 0;
};

}  // namespace motley
