#include "core/spec/profile_key.h"

#include <nlohmann/json.hpp>

#include "core/hash.h"
#include "core/spec/json.h"
#include "core/version.h"

namespace motley {

std::string profile_job_key(const JobSpec& job) {
  const nlohmann::json key = {{"model", to_json(job.model)},
                              {"precision", static_cast<int>(job.train.precision)},
                              {"numerics", static_cast<int>(job.train.numerics)},
                              {"optimizer", job.train.optimizer.type}};
  return xxh3_128_hex(key.dump());
}

std::string code_version() {
  const BuildVersion& build = build_version();
  return std::string(build.version) + " (" + std::string(build.git) + ")";
}

}  // namespace motley
