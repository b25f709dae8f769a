#include "core/output.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace motley {
namespace {

TEST(WithoutExceptions, AResultPassesAsItIs) {
  EXPECT_EQ(*without_exceptions([]() -> Result<int> { return 7; }), 7);
  const auto failed =
      without_exceptions([]() -> Result<int> { return fail(ErrorCode::kUsage, "no"); });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kUsage);
}

TEST(WithoutExceptions, AnExceptionIsAFaultOfOursInOneLine) {
  const auto failed =
      without_exceptions([]() -> Result<Unit> { throw std::runtime_error("two\nlines"); });
  ASSERT_FALSE(failed);
  EXPECT_EQ(exit_code(failed.error().code), 70);
  EXPECT_EQ(failed.error().to_string(), "a fault of this program, please report it: two\\nlines");
}

}  // namespace
}  // namespace motley
