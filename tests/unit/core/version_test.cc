#include "core/version.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(Version, NamesReleaseCommitAndCompiler) {
  EXPECT_EQ(build_version().version, "0.1.0");
  EXPECT_FALSE(build_version().git.empty());
  EXPECT_FALSE(build_version().compiler.empty());
}

}  // namespace
}  // namespace motley
