#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace motley {

/// What this build was made from. A part that was not found when it was configured is an empty
/// string.
struct BuildVersion {
  std::string_view version;  ///< of Motley: "0.1.0"
  std::string_view git;      ///< `git describe`, "-dirty" with local changes, "unknown" without git
  std::string_view compiler;            ///< "GNU 12.2.0"
  std::string_view build_type;          ///< CMake's
  std::string_view cpu_isa;             ///< -march of the CPU kernels
  std::string_view cuda;                ///< toolkit
  std::string_view cuda_architectures;  ///< as nvcc calls them: "sm_80 sm_90 compute_90" (PTX last)
  std::string_view nccl;
  std::string_view mpi;  ///< library: "Open MPI v4.1.4"; "standard 3.1" where it could not be asked
};

const BuildVersion& build_version();

/// Members named as the fields.
nlohmann::json to_json(const BuildVersion& build);

}  // namespace motley
