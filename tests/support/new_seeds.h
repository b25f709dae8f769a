#pragma once

#include <cstdint>
#include <cstdio>
#include <random>

namespace motley {

/// Calls `run(seed)` with `count` seeds that differ from run to run; each is printed first, so that
/// what fails can be repeated.
template <class Run>
void for_new_seeds(int count, Run run) {
  std::random_device source;
  for (int i = 0; i < count; ++i) {
    const uint32_t seed = source();
    std::printf("seed %u\n", seed);
    run(seed);
  }
}

}  // namespace motley
