#pragma once
// Whether toolkit, driver and card fit together; where they do not, one line that names both
// versions and, after "; ", what to do. Program and module ask before anything is launched.

#include <string>
#include <string_view>

namespace motley {

/// What a build with CUDA is made of.
struct CudaBuild {
  std::string_view toolkit;  ///< "13.0.88"
  std::string_view code;     ///< "sm_80 sm_90 compute_90": BuildVersion::cuda_architectures
};

struct CudaDriver {
  int cuda = 0;  ///< the newest CUDA it supports, of cudaDriverGetVersion: 12040; 0: no driver
  std::string version;  ///< its own, "535.183.01"; empty where nobody tells it
};

/// Why the driver cannot run the build; empty when it can. A driver runs every CUDA of its own
/// major version and of older ones (CUDA Compatibility guide, "Minor Version Compatibility").
std::string driver_fault(const CudaBuild& build, const CudaDriver& driver);

/// Whether `code` holds something for a card of this capability (90: sm_90): machine code of the
/// same generation and no newer, or PTX, from which the driver compiles (CUDA C++ programming
/// guide, "Binary Compatibility" and "PTX Compatibility").
bool has_code_for(std::string_view code, int capability);

/// "Tesla V100 (sm_70): this build has sm_75 to sm_120; build with preset cuda12"; empty when the
/// build runs on the card.
std::string card_fault(const CudaBuild& build, const std::string& name, int capability);

/// Why the module did not load: `reason` as dlerror() gives it, a missing library with the package
/// it comes from.
std::string load_fault(const CudaBuild& build, const std::string& reason);

}  // namespace motley
