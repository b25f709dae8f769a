#pragma once
// What has to be right on this machine before a job can run.

#include <vector>

#include "scheduler/doctor/findings.h"

namespace motley {

/// Compiler, motley-worker, CPU kernels, MPI launch, CUDA and driver, disk, shared memory, in this
/// order. Starts programs and two ranks; takes some seconds, 20 for each that hangs.
std::vector<Finding> check_everything();

}  // namespace motley
