#include "tests/support/require.h"

#include <cstdlib>
#include <string>

namespace motley::testing {

bool is_required(std::string_view capability) {
  const char* listed = std::getenv("MOTLEY_REQUIRE");
  if (listed == nullptr) return false;
  const std::string list = "," + std::string(listed) + ",";
  return list.find("," + std::string(capability) + ",") != std::string::npos;
}

}  // namespace motley::testing
