#pragma once
// The process above a rank's program, started by mpirun: it sets the environment, passes on the
// wish to stop, and keeps how the program ended. What it ends with is for mpirun, which ends all
// ranks when one fails: a program that ends with 75 has not failed.

#include <string>

#include "core/result.h"

namespace motley {

/// The exit status for mpirun. The rank is the one that Open MPI gives this process.
Result<int> run_program_rank(const std::string& document);

/// The job's `setup`, as rank 0 would be run; kRunFailed where it does not end with 0.
Result<Unit> run_program_setup(const std::string& document);

}  // namespace motley
