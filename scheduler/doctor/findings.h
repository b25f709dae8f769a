#pragma once
// From what was seen on a machine to a finding with the one fix for it. Pure: scheduler/doctor/
// checks.h looks.

#include <string>
#include <vector>

#include "core/ids.h"
#include "core/result.h"

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
  std::string fix;     ///< one thing to do; empty when there is nothing to do
};

struct CompilerFacts {
  std::string program;  ///< path of c++ or g++; empty: neither is there
  /// What `--version` prints; an error when it does not run.
  Result<std::string> version = std::string();
};
/// A compiler new enough to build Motley (for those who build it here).
Finding compiler_finding(const CompilerFacts& facts);

/// The worker's own account of itself (`motley-worker version --json`).
struct WorkerFacts {
  bool chosen = false;  ///< by MOTLEY_WORKER
  bool found = true;
  std::string directory;  ///< where motley is
  std::string error;      ///< why it gives no account; empty: it did
  std::string version, git;
  std::string cuda;        ///< toolkit it was built with; empty: none
  std::string gpus;        ///< "2 found", or "none: " and why
  std::string arithmetic;  ///< of its CPU device, "cpu:…", or why there is none
  std::string mpi;         ///< library, or why there is none

  bool works() const { return found && error.empty(); }
};
/// motley-worker is there, starts, and is of our version.
Finding worker_finding(const WorkerFacts& facts, const std::string& our_git);
/// Its CPU kernels run here: OpenBLAS, instruction set.
Finding kernels_finding(const WorkerFacts& facts);

struct LaunchFacts {
  bool mpirun = true;                                ///< Open MPI's is there
  Result<std::string> communicator = std::string();  ///< of two ranks, or why they did not meet
};
/// mpirun really starts two ranks that reach each other.
Finding launch_finding(const LaunchFacts& facts, const WorkerFacts& worker);

struct GpuFacts {
  bool card = false;    ///< an NVIDIA device on the PCI bus
  bool driver = false;  ///< its kernel module is loaded
  bool nodes = false;   ///< /dev/nvidiactl is there
  bool container = false;
};
/// GPUs, driver and CUDA as the worker sees them.
Finding gpu_finding(const GpuFacts& facts, const WorkerFacts& worker);

struct DiskFacts {
  std::string directory;
  std::string variable;  ///< that moves it
  Result<Unit> made = Unit{};
  Result<Unit> wrote = Unit{};  ///< and synced
  Bytes room{0};
};
/// Room and working fsync where runs and profiles are kept: the first place that fails.
Finding disk_finding(const std::vector<DiskFacts>& places);

struct SharedMemoryFacts {
  bool there = true;
  bool writable = true;
  bool container = false;
  Bytes size{0}, room{0};
};
/// Shared memory for ranks of one host.
Finding shared_memory_finding(const SharedMemoryFacts& facts);

}  // namespace motley
