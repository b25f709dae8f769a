#include "tests/support/test_device.h"

#include <cstdlib>
#include <string>

#include "core/check.h"

namespace motley::testing {

DeviceKind test_device() {
  const char* given = std::getenv("MOTLEY_TEST_DEVICE");
  const std::string word = given == nullptr ? "cpu" : given;
  MOTLEY_CHECK(word == "cpu" || word == "cuda", "MOTLEY_TEST_DEVICE is cpu or cuda");
  return word == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu;
}

}  // namespace motley::testing
