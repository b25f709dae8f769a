#pragma once
// The kind of device that contract and end-to-end tests compute on. They run on the CPU; the check
// of a GPU (tests/gpu/run.sh) runs the same tests with MOTLEY_TEST_DEVICE=cuda.

#include <string>

#include "core/spec/fleet_spec.h"

namespace motley::testing {

/// What MOTLEY_TEST_DEVICE says; kCpu when it is not set. Ends the program at an unknown word.
DeviceKind test_device();

/// Of the first GPU here, on which all ranks of a test then compute; empty where there is none.
std::string uuid_of_test_gpu();

}  // namespace motley::testing
