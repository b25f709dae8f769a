#include "core/version.h"

#include <nlohmann/json.hpp>

namespace motley {

nlohmann::json to_json(const BuildVersion& build) {
  return {{"version", build.version},
          {"git", build.git},
          {"compiler", build.compiler},
          {"build_type", build.build_type},
          {"cpu_isa", build.cpu_isa},
          {"cuda", build.cuda},
          {"cuda_architectures", build.cuda_architectures},
          {"nccl", build.nccl},
          {"mpi", build.mpi}};
}

}  // namespace motley
