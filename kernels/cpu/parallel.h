#pragma once
// How CPU kernels cut their work: by shape alone, never by the number of threads.

#include <algorithm>
#include <functional>

#include "kernels/device.h"

namespace motley::cpu {

/// About so many elements make a task worth handing to another thread.
inline constexpr int64_t kTaskElements = 16384;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Calls body(begin, end) over [0, count) in ranges of `grain`, the last one shorter.
template <class Body>
void parallel_ranges(Device& device, int64_t count, int64_t grain, const Body& body) {
  const auto task = [&](int64_t index, int) {
    body(index * grain, std::min(count, (index + 1) * grain));
  };
  device.parallel_for(ceil_div(count, grain), std::ref(task));
}

/// Ranges of rows that are computed independently of each other.
template <class Body>
void parallel_rows(Device& device, int64_t rows, int64_t width, const Body& body) {
  parallel_ranges(device, rows, std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, width)),
                  body);
}

}  // namespace motley::cpu
