#pragma once

#include <gtest/gtest.h>

#include <string_view>

namespace motley::testing {

/// Whether the environment variable MOTLEY_REQUIRE, a list separated by commas, names `capability`.
bool is_required(std::string_view capability);

}  // namespace motley::testing

/// Ends the current test: a skip that says why, or a failure where MOTLEY_REQUIRE names the
/// capability ("mpi", "gpu", "torch", "root"). Only for something the machine lacks, never for a
/// set-up that went wrong.
#define MOTLEY_SKIP_WITHOUT(capability, reason)                                                \
  do {                                                                                         \
    if (::motley::testing::is_required(capability))                                            \
      GTEST_FAIL() << "required capability '" << (capability) << "' is missing: " << (reason); \
    GTEST_SKIP() << "no " << (capability) << ": " << (reason);                                 \
  } while (false)
