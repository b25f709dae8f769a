#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>

namespace motley {

/// What MOTLEY_TEST_SEED says, to repeat what has failed.
inline std::optional<uint32_t> given_seed() {
  const char* text = std::getenv("MOTLEY_TEST_SEED");
  if (text == nullptr || *text == 0) return std::nullopt;
  return static_cast<uint32_t>(std::stoul(text));
}

/// Calls `run(seed)` with `count` seeds that differ from run to run, or with the given one; each is
/// printed first.
template <class Run>
void for_new_seeds(int count, Run run) {
  const std::optional<uint32_t> given = given_seed();
  std::random_device source;
  for (int i = 0; i < (given ? 1 : count); ++i) {
    const uint32_t seed = given ? *given : source();
    std::printf("seed %u\n", seed);
    run(seed);
  }
}

/// One for the whole process, printed once.
inline uint32_t seed_of_this_run() {
  static const uint32_t seed = [] {
    const uint32_t chosen = given_seed().value_or(std::random_device()());
    std::printf("MOTLEY_TEST_SEED=%u\n", chosen);
    std::fflush(stdout);
    return chosen;
  }();
  return seed;
}

}  // namespace motley
