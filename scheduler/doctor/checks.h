#pragma once
// What has to be right on this machine before a job can run; each finding has one fix.

#include <string>
#include <vector>

namespace motley {

enum class Health {
  kGood,
  kAbsent,  ///< not needed, but good to know: no GPU, no compiler
  kBroken,
};

struct Finding {
  std::string what;  ///< "MPI launch"
  Health health = Health::kGood;
  std::string detail;  ///< what was seen
  std::string fix;     ///< one thing to do; empty when nothing is wrong
};

/// A compiler new enough to build Motley (for those who build it here).
Finding check_compiler();
/// motley-worker is there, starts, and is of our version.
Finding check_worker();
/// mpirun really starts two ranks that reach each other.
Finding check_mpi_launch();
/// GPUs, driver and CUDA as the worker sees them.
Finding check_gpu();
/// Room and working fsync where runs are kept.
Finding check_disk();
/// Shared memory for ranks of one host.
Finding check_shared_memory();

/// All of them, in this order.
std::vector<Finding> check_everything();

}  // namespace motley
