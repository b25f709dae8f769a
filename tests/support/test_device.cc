#include "tests/support/test_device.h"

#include <cstdlib>
#include <string>

#include "core/check.h"
#include "kernels/device.h"

namespace motley::testing {

DeviceKind test_device() {
  const char* given = std::getenv("MOTLEY_TEST_DEVICE");
  const std::string word = given == nullptr ? "cpu" : given;
  MOTLEY_CHECK(word == "cpu" || word == "cuda", "MOTLEY_TEST_DEVICE is cpu or cuda");
  return word == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu;
}

std::string uuid_of_test_gpu() {
  std::string note;
  for (const FoundDevice& found : discover_devices(&note))
    if (found.kind == DeviceKind::kCuda) return found.uuid;
  return {};
}

}  // namespace motley::testing
