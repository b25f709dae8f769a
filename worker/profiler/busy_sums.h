#pragma once
// What summing gradients takes from computing that goes on at the same time.

#include <functional>

#include "comm/communicator.h"
#include "core/result.h"
#include "kernels/device.h"
#include "worker/train/slice_exchange.h"

namespace motley {

/// What is summed, and how long that takes by itself.
struct TimedSum {
  SliceExchange& slices;
  GradientSpans gradients;
  int64_t elements = 0;
  double seconds = 0;
};

/// The share of the time of a sum by which computing beside it is held up on the rank where that is
/// most, 0 to 1: median of three. Collective, for ranks that compute on so many threads of CPUs;
/// `now` is in seconds, and goes on while they do.
Result<double> measure_busy_share(Device& device, int threads, const TimedSum& sum,
                                  Communicator& ranks, const std::function<double()>& now);

}  // namespace motley
