#include "tests/support/require.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace motley::testing {
namespace {

class Require : public ::testing::Test {
 protected:
  ~Require() override { unsetenv("MOTLEY_REQUIRE"); }
};

TEST_F(Require, NamesWholeEntriesOfTheList) {
  setenv("MOTLEY_REQUIRE", "mpi,gpu", 1);
  EXPECT_TRUE(is_required("mpi"));
  EXPECT_TRUE(is_required("gpu"));
  EXPECT_FALSE(is_required("gp"));
  EXPECT_FALSE(is_required("torch"));
  unsetenv("MOTLEY_REQUIRE");
  EXPECT_FALSE(is_required("mpi"));
}

TEST_F(Require, MissingCapabilityFailsWhereItIsRequired) {
  setenv("MOTLEY_REQUIRE", "gpu", 1);
  EXPECT_FATAL_FAILURE(MOTLEY_SKIP_WITHOUT("gpu", "no driver"), "no driver");
}

}  // namespace
}  // namespace motley::testing
